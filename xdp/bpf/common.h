/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once
/*
 * Most frames have at most one tag, and behind it IPv4 without options and fragments, or IPv6 without extension headers
 * and with TCP or UDP. Their key is made here, its two hottest words in registers. Parsing an unneeded field costs less
 * than a test for the need, and neighbours are tested as one word: the length of this path, in instructions, is its cost.
 */
#include "parse.h"

/* What the tag of a common frame gives its key. All but eth is 0 without a tag. */
struct ft_tagged {
	void *eth; /* the Ethernet header */
	__u64 flags; /* in the hot word */
	__u64 tags; /* the word of the tags */
};

#define FT_HOT_TAG1 FT_PACK(FT_TAG1, 6, 2)

/* The words of a common frame's key other than the two hot ones. The EtherType is 12 bytes behind p. */
static __always_inline void ft_fill_common(struct ft_tagged t, void *p, struct ft_key *k, __u64 need, _Bool v4)
{
	asm volatile("" : : "r"(k) : "memory");
	if (need & FT_N_IPV6) {
		if (v4) {
			k->w[FT_W_ADDR6] = k->w[FT_W_ADDR6 + 1] = k->w[FT_W_ADDR6 + 2] = 0;
		} else {
			k->w[FT_W_ADDR6] = ft_load64(p, 30);
			k->w[FT_W_ADDR6 + 1] = ft_load64(p, 38);
			k->w[FT_W_ADDR6 + 2] = ft_load64(p, 46);
		}
	}
	if (need & FT_N_MISC) {
		if (v4) {
			k->w[FT_W_MISC] = FT_PACK(ft_load8(p, 15), 0, 1) | FT_PACK(ft_load8(p, 22), 1, 1) |
					  FT_PACK(ft_load8(p, 23), 2, 1);
		} else {
			__u32 first = ft_load32(p, 14);

			k->w[FT_W_MISC] = FT_PACK(bpf_ntohl(first) >> 20 & 0xff, 0, 1) | FT_PACK(ft_load8(p, 21), 1, 1) |
					  FT_PACK(ft_load8(p, 20), 2, 1) | FT_PACK(first & bpf_htonl(0xfffff), 4, 4);
		}
	}
	if (need & FT_N_TAGS)
		k->w[FT_W_TAGS] = t.tags;
	if (need & FT_N_ETH) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
		k->w[FT_W_DST] = (ft_load64(t.eth, 0) & 0xffffffffffffULL) | FT_PACK(ft_load16(p, 12), 6, 2);
		k->w[FT_W_SRC] = ft_load64(t.eth, 4) >> 16 | FT_PACK(FT_CONST(port), 6, 2);
#else
		k->w[FT_W_DST] = (ft_load64(t.eth, 0) & ~0xffffULL) | FT_PACK(ft_load16(p, 12), 6, 2);
		k->w[FT_W_SRC] = ft_load64(t.eth, 4) << 16 | FT_PACK(FT_CONST(port), 6, 2);
#endif
	}
	ft_clear_inner(k, need);
}

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define FT_WORD32(a, b, c, d) ((__u32)(a) | (__u32)(b) << 8 | (__u32)(c) << 16 | (__u32)(d) << 24)
#else
#define FT_WORD32(a, b, c, d) ((__u32)(a) << 24 | (__u32)(b) << 16 | (__u32)(c) << 8 | (__u32)(d))
#endif

/* EtherType, version and, of IPv4, IHL. */
#define FT_IS_COMMON4(p) ((ft_load32(p, 12) & FT_WORD32(0xff, 0xff, 0xff, 0)) == FT_WORD32(0x08, 0x00, 0x45, 0))
#define FT_IS_COMMON6(p) ((ft_load32(p, 12) & FT_WORD32(0xff, 0xff, 0xf0, 0)) == FT_WORD32(0x86, 0xdd, 0x60, 0))

/* The fewest bytes of a common frame: both of its kinds begin with as many. */
#define FT_COMMON_MIN 38

/* Ports of TCP and UDP are a part of the frame's key. */
#define FT_PORTED(proto) ((proto) < 64 && ((1ULL << 6 | 1ULL << 17) >> (proto) & 1))

/* The flags of TCP, tcp bytes into the frame. */
static __always_inline _Bool ft_common_flags(void *p, void *end, __u32 tcp, __u64 *hot)
{
	if (p + tcp + 14 > end)
		return 0;
	*hot |= FT_PACK(ft_load8(p, tcp + 13), 5, 1) | FT_PACK(FT_TCPFLAGS, 6, 2);
	return 1;
}

/* The bits before those flags. The caller has filled the words of the key. */
static __always_inline void ft_common_high(void *p, void *end, __u32 tcp, struct ft_key *k)
{
	if (p + tcp + 14 <= end)
		k->w[FT_W_MISC] |= FT_TCP_HIGH(p + tcp);
}

/* The hot word of a frame of IPv4 without ports; 0: the frame is not a common one. */
static __always_inline __u64 ft_portless4(void *p, __u8 proto)
{
	const __u64 need = FT_CONST(need);
	__u64 hot = FT_CONST(hot4) | FT_PACK(proto, 4, 1);

	FT_ASIDE;
	if (need & FT_N_GRE && proto == 47)
		return 0;
	if (need & FT_N_IPIP && (proto == 4 || proto == 41))
		return 0;
	if (proto == 1)
		return hot | FT_PACK(ft_load16(p, 34), 0, 2);
	if ((need & FT_N_SCTP && proto == 132) || (need & FT_N_AH && proto == 51))
		return 0;
	if (need & FT_N_ESP && proto == 50)
		return hot | FT_PACK(ft_load32(p, 34), 0, 4);
	return hot ^ FT_PACK(FT_L4, 6, 2);
}

static __always_inline _Bool ft_parse_common4(struct ft_tagged t, void *p, void *end, struct ft_key *k, __u64 *hot,
					      __u64 *addr)
{
	__u8 proto = ft_load8(p, 23);

	if (ft_load16(p, 20) & bpf_htons(0x3fff))
		return 0;
	if (FT_PORTED(proto))
		*hot = FT_CONST(hot4) | FT_PACK(proto, 4, 1) | FT_PACK(ft_load32(p, 34), 0, 4);
	else if (!(*hot = ft_portless4(p, proto)))
		return 0;
	*hot |= t.flags;
	*addr = ft_load64(p, 26);
	if (!FT_CONST(plain)) {
		const __u64 need = FT_CONST(need);

		if (need & FT_N_UDP_TUNNEL && proto == 17 && ft_is_tunnel(ft_load16(p, 36), need))
			return 0;
		if (need & FT_N_TCPFLAGS && proto == 6 && !ft_common_flags(p, end, 34, hot))
			return 0;
		ft_fill_common(t, p, k, need, 1);
		if (need & FT_N_TCPHIGH && proto == 6)
			ft_common_high(p, end, 34, k);
	}
	return 1;
}

static __always_inline _Bool ft_parse_common6(struct ft_tagged t, void *p, void *end, struct ft_key *k, __u64 *hot,
					      __u64 *addr)
{
	const __u64 need = FT_CONST(need);

	if (p + 58 > end)
		return 0;
	__u8 proto = ft_load8(p, 20);

	if (!FT_PORTED(proto))
		return 0;
	*hot = FT_CONST(hot6) | t.flags | FT_PACK(proto, 4, 1) | FT_PACK(ft_load32(p, 54), 0, 4);
	if (need & FT_N_UDP_TUNNEL && proto == 17 && ft_is_tunnel(ft_load16(p, 56), need))
		return 0;
	if (need & FT_N_TCPFLAGS && proto == 6 && !ft_common_flags(p, end, 54, hot))
		return 0;
	*addr = ft_load64(p, 22);
	ft_fill_common(t, p, k, need, 0);
	if (need & FT_N_TCPHIGH && proto == 6)
		ft_common_high(p, end, 54, k);
	return 1;
}
