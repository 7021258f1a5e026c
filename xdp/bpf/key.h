/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once
/*
 * The flat key: outer headers, then the headers inside a tunnel, nine 64-bit
 * words each. struct ft_headers documents the layout (Go pins its Headers to
 * its BTF); the parser composes whole words in registers and never stores a
 * narrower field, because a word loaded after a narrower store would wait for
 * the store to leave the store buffer.
 */
#include <linux/types.h>

struct ft_headers {
	__u8 l4[4];
	__u8 proto;
	__u8 tcp_flags;
	__u16 flags;
	__u8 addr[32];
	__u8 tos;
	__u8 ttl;
	__u8 next;
	__u8 tcp_high;
	__u8 label[4]; /* the low 20 bits; above them a bit for each pair of a set and an address (sets.h) */
	__u8 eth_dst[6];
	__u8 eth_type[2];
	__u8 eth_src[6];
	__u16 port;
	__u8 vlan[2][2];
	__u8 tunnel[4];
};

enum ft_flags {
	FT_ETH = 1 << 0,
	FT_TAG1 = 1 << 1,
	FT_TAG2 = 1 << 2,
	FT_IPV4 = 1 << 3,
	FT_IPV6 = 1 << 4,
	FT_FRAG = 1 << 5,
	FT_LATER = 1 << 6,
	FT_L4 = 1 << 7,
	FT_TUNNEL = 1 << 8, /* of any tunnel but GRE; proto and the destination port tell which */
	FT_GRE = 1 << 9,
	FT_GREKEY = 1 << 10,
	FT_EGRESS = 1 << 11,
	FT_INCOMPLETE = 1 << 12,
	FT_TCPFLAGS = 1 << 13,
	FT_MPLS = 1 << 14,
};

/* Words of one level. */
enum ft_word {
	FT_W_HOT,    /* l4, proto, tcp_flags, flags */
	FT_W_ADDR,   /* IPv4 source and destination, or the first half of the IPv6 source */
	FT_W_ADDR6,  /* the other three words of the IPv6 addresses */
	FT_W_MISC = FT_W_ADDR6 + 3, /* tos, ttl, next, tcp_high, label */
	FT_W_DST,    /* eth_dst, eth_type */
	FT_W_SRC,    /* eth_src, port */
	FT_W_TAGS,   /* vlan, tunnel */
	FT_LEVEL_WORDS,
};

#define FT_WORDS (2 * FT_LEVEL_WORDS)
#define FT_INNER FT_LEVEL_WORDS

struct ft_key {
	__u64 w[FT_WORDS];
};

/* A field of size bytes at byte off of its word, as memory has it. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define FT_PACK(v, off, size) ((__u64)(v) << (8 * (off)))
#else
#define FT_PACK(v, off, size) ((__u64)(v) << (8 * (8 - (off) - (size))))
#endif
