/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once
/*
 * Constants of one load of the programs. User space writes them into .rodata, which is frozen
 * before the verifier runs: it knows every value here, removes the branches that they decide, and
 * so leaves only the code of the parser and of the classifier that the rules need.
 */
#include "key.h"

/*
 * Marks a block that goes aside: package fold lets the other way go straight on from the test, and leaves out the mark. The
 * way of most packets is then one without jumps, which some CPUs follow faster.
 */
#define FT_ASIDE asm volatile("goto +0")

#define FT_MAX_TUPLES 8 /* masks that are hashed */

/* Layers that some rule looks at; outer bits as they are, inner ones << FT_N_INNER. */
enum ft_need {
	FT_N_ETH = 1 << 0,  /* Ethernet addresses or type */
	FT_N_IPV4 = 1 << 1,
	FT_N_IPV6 = 1 << 2,
	FT_N_MISC = 1 << 3, /* tos, ttl, next header, flow label */
	FT_N_L4 = 1 << 4,   /* ports, ICMP type and code */
	FT_N_TAGS = 1 << 5, /* VLAN tags, tunnel */
	FT_N_VXLAN = 1 << 6,
	FT_N_GRE = 1 << 7,
	FT_N_TCPFLAGS = 1 << 8, /* with FT_N_L4 */
	FT_N_ESP = 1 << 9,      /* with FT_N_L4 */
	FT_N_MPLS = 1 << 10,
	FT_N_TCPHIGH = 1 << 11, /* with FT_N_TCPFLAGS and FT_N_MISC */
	/* The other tunnels, which take no place among the layers inside. */
	FT_N_IPIP = 1 << 12,
	FT_N_GENEVE = 1 << 13,
	FT_N_GTPU = 1 << 14,
	FT_N_MPLSUDP = 1 << 15,
	FT_N_SCTP = 1 << 16,    /* with FT_N_L4; with FT_N_TAGS for the verification tag */
	FT_N_AH = 1 << 17,      /* with FT_N_L4 */
	FT_N_ARP = 1 << 18,
	FT_N_SET = 1 << 19,     /* and the bits behind it: a bit for each pair of a set and an address (sets.h); with FT_N_MISC */
	FT_N_INNER = 32,    /* shift; inside, the place of VXLAN says that some inner header is looked at */
};

/* Tunnels over UDP with headers of any length; all tunnels over UDP; all tunnels. */
#define FT_N_LONG (FT_N_GENEVE | FT_N_GTPU | FT_N_MPLSUDP)
#define FT_N_UDP_TUNNEL (FT_N_VXLAN | FT_N_LONG)
#define FT_N_TUNNEL (FT_N_UDP_TUNNEL | FT_N_GRE | FT_N_IPIP)

/* Pairs of a set and an address, of the outer headers and of the inner ones: their bits in the needs. */
#define FT_PAIRS 12
#define FT_INNER_PAIRS 9
#define FT_N_OUTER_SETS (((1ULL << FT_PAIRS) - 1) * FT_N_SET)
#define FT_N_INNER_SETS (((1ULL << FT_INNER_PAIRS) - 1) * FT_N_SET << FT_N_INNER)
#define FT_N_SETS (FT_N_OUTER_SETS | FT_N_INNER_SETS)

/* Where the bits of the pairs begin in the 32 bits of the flow label, as a number. */
#define FT_SET_SHIFT 20

/* Layers of a frame of IPv4 that are in words behind the first two. */
#define FT_N_BEHIND (FT_N_ETH | FT_N_MISC | FT_N_TAGS | -1ULL << FT_N_INNER)

enum ft_tuple_flags {
	FT_T_SINGLE = 1, /* one key, which is here: its slot is slots[id], nothing is hashed */
};

/* One distinct mask. Its place in the array is its place in the search. */
struct ft_tuple {
	__u32 id;    /* stable over loads */
	__u32 flags;
	__u32 words; /* bit w: mask[w] is not 0 */
	__u32 n;     /* how many those are, */
	__u8 word[24]; /* and which */
	__u32 single; /* offset of slots[id] */
	__u32 spare;
	__u64 seed; /* where its hashes begin */
	__u64 mask[FT_WORDS];
	__u64 key[FT_WORDS]; /* of a single tuple */
};

/*
 * The only rule, for flowtally_xdp_one: addresses, protocol, and ports of TCP or UDP, as a common frame of IPv4 has them.
 * The masks are signed: extended to 64 bits, they still fit into an instruction.
 */
struct ft_one_rule {
	__s32 proto_mask; /* of bytes 20 to 23 of the frame, with the bits of a fragment */
	__u32 proto;
	__s32 ports_mask;
	__u32 ports;
	__s32 src_mask;
	__u32 src;
	__s32 dst_mask;
	__u32 dst;
};

/* Masks of offsets are in bytes. */
struct ft_config {
	__u64 need;
	__u32 tuples;
	__u32 egress; /* FT_EGRESS or 0 */
	__u32 port;
	__u32 slot_mask;    /* of slots, not bytes */
	__u32 entry_mask;   /* of the entry's offset in a slot */
	__u32 rank_base;    /* where the ranks begin, behind the units */
	__u32 counter_mask; /* of the counter's offset in a block */
	__u32 cpus;
	__u64 cpu_block; /* bytes */
	__u64 hot4; /* the hot word of the common IPv4 frame without its ports and protocol */
	__u64 hot6;
	__u64 mul[FT_WORDS][2]; /* secret: multipliers of the halves of each word, */
	__u64 fold;	/* and of their sum */
	__u32 plain; /* 1: nothing is needed but IPv4 and ports */
	__u32 layer3; /* 1: frames of the interface begin with IP */
	__u32 in_order; /* 1: stores of one CPU become visible to others in their order */
	__u64 marks; /* offset of the marks in a block, in bytes */
	__u32 tree_mask; /* of words of the trees; 0: no rule is in a tree */
	__u32 classes;   /* bit c: a rule may match a frame of the class c */
	struct ft_one_rule one; /* all 0 unless flowtally_xdp_one is loaded */
	struct ft_tuple tuple[FT_MAX_TUPLES];
	__u8 pair[2][FT_PAIRS]; /* by level and bit: the number of the set, and FT_P_DST and FT_P_IPV6 (sets.h) */
};

/* It begins a line of the cache, wherever the compiler puts it among the other constants. */
const volatile struct ft_config ft_conf __attribute__((aligned(64)));

/*
 * A field of the constants. Package fold replaces the load by the value. The assembly hides the address from the compiler,
 * which would otherwise keep it in a register.
 */
#define FT_CONST(field)                                           \
	({                                                        \
		const volatile struct ft_config *conf = &ft_conf; \
                                                                  \
		asm volatile("" : "+r"(conf));                    \
		conf->field;                                      \
	})

static __always_inline const volatile struct ft_tuple *ft_tuple(__u32 place)
{
	return &ft_conf.tuple[place];
}
