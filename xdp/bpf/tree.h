/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once
/*
 * Rules of any mask and with port ranges: decision trees that are data. One program walks them, so a
 * change of rules is a change of words in ft_tree. Package xdp/tree builds the trees, specifies their
 * words (node.go), and walks them in Go as this file does.
 *
 * An entry of a tree is: its slot; rank; mask and key of FT_W_ADDR; the bounds of the outer ports and of the protocol, as
 * ft_outside_bounds has them; mask and key of FT_W_HOT; the bounds of the inner ports if FT_E_INNER; mask and key of each
 * further word. So a rule on the IPv4 5-tuple takes 64 bytes, which are one line of the cache. In place of an offset the
 * slot of an entry has FT_E_MORE: bit w for each further word w, FT_E_INNER, and the place of the first of these words.
 */
#include "counters.h"

#define FT_E_MORE 0x1fffffe
#define FT_E_INNER (1u << FT_WORDS)
#define FT_E_REST (FT_WORDS + 1) /* shift */
#define FT_E_FIELDS ((1u << FT_E_REST) - 1 & FT_E_MORE) /* FT_E_MORE without the place */
#define FT_E_INNER_BOUNDS 8

__u64 ft_tree[8] SEC(".data.tree");

/* A frame walks the tree of its class. mem[class] is the root. */
enum ft_class {
	FT_C_OTHER,
	FT_C_IPV4,
	FT_C_IPV6,
	FT_CLASSES,
};

/* Most cuts of a tree, trees of a class, and rules of a leaf. */
#define FT_TREE_CUTS 16
#define FT_TREE_GROUPS 8
#define FT_TREE_LIST 1024
#define FT_TREE_NEAR 16 /* rules of a leaf that the verifier follows one by one in the walk, */
#define FT_TREE_FEW 4   /* if they take it longer, because they look at more headers, */
#define FT_TREE_STEP 64 /* and behind these in a function */

#define FT_KIND(n) ((n) & 6)
#define FT_CUT 2
#define FT_LIST 4
#define FT_FORK 6
#define FT_IS_CUT(n) ((n) & 2) /* of a node that is no fork */
#define FT_COUNT(n) ((n) >> 16 & 0xffff)
#define FT_BASE(n) ((n) >> 32)
#define FT_LIST_COUNT(n) ((n) >> 28 & 0x7ff)
#define FT_LIST_BASE(n) ((n) >> 39 << 1)

static __always_inline __u64 ft_node(__u64 at)
{
	return ((volatile __u64 *)ft_opaque(ft_tree))[at & FT_CONST(tree_mask)];
}

/* v shifted by the low 6 bits of n, which the compiler would cut off. */
static __always_inline __u64 ft_shift(__u64 v, __u64 n)
{
	asm volatile("%0 >>= %1" : "+r"(v) : "r"(n));
	return v;
}

static __always_inline __u32 ft_class_of(__u64 hot)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	__u32 flags = hot >> 48;
#else
	__u32 flags = hot;
#endif
	return flags & FT_IPV4 ? FT_C_IPV4 : flags & FT_IPV6 ? FT_C_IPV6 : FT_C_OTHER;
}

/* Returns the entry of a rule, or of the first rule of a list. */
static __always_inline const volatile __u64 *ft_tree_entry(__u64 at)
{
	return (void *)ft_opaque(ft_entries) + (at & FT_CONST(entry_mask));
}

/* Fields of a level in one number: the source port in bits 0..15, the protocol in 17..24, the destination port in 32..47. */
static __always_inline __u64 ft_ports(__u64 hot)
{
	__u64 v = bpf_be64_to_cpu(hot);

	asm volatile("" : "+r"(v)); /* the compiler would swap the bytes of the source port once more, */
	v = v >> 48 | (v >> 7 & 0xff << 17) | (v & 0xffffULL << 32);
	asm volatile("" : "+r"(v)); /* and put a part of the sum on the stack */
	return v;
}

/* The bit above each field. */
#define FT_GUARDS (1ULL << 16 | 1ULL << 25 | 1ULL << 48)

/*
 * Not 0 if a field is outside of its bounds. bounds[0] has in each field the first value less 1, and the bit above, which
 * stays if the field is below the first value. bounds[1] has the greatest number of the field less the last value: the
 * sum has the bit above if the field is above the last value. Without branches: the verifier follows the loop over a list
 * through each of them, and it takes 8,192 of them in a row.
 */
static __always_inline __u64 ft_outside_bounds(__u64 ports, const volatile __u64 *bounds)
{
	return ((bounds[0] - ports) | (bounds[1] + ports)) & FT_GUARDS;
}

/*
 * The part of an entry that few rules have. Where it begins is in the entry, so that the verifier does not know it:
 * it would follow every combination of words.
 */
__noinline int ft_rest(const struct ft_key *k, __u64 rule)
{
	const volatile __u64 *e = ft_tree_entry(rule);

	if (!k)
		return 0;
	__u64 words = e[0], at = words >> FT_E_REST & 63;

	if (words & FT_E_INNER && ft_outside_bounds(ft_ports(k->w[FT_INNER + FT_W_HOT]), e + FT_E_INNER_BOUNDS))
		return 0;
#pragma clang loop unroll(disable)
	for (int w = 2; w < FT_WORDS; w++) {
		if (!(words >> w & 1))
			continue;
		if ((k->w[w] & e[at]) != e[at + 1])
			return 0;
		at = (at + 2) & 63;
	}
	return 1;
}

/* The words behind the two hot ones that the parser fills, as bits. */
static __always_inline __u32 ft_filled(__u64 need)
{
	__u32 words = 0;

	if (need & FT_N_IPV6)
		words |= 7 << FT_W_ADDR6;
	if (need & FT_N_MISC)
		words |= 1 << FT_W_MISC;
	if (need & FT_N_ETH)
		words |= 1 << FT_W_DST | 1 << FT_W_SRC;
	if (need & FT_N_TAGS)
		words |= 1 << FT_W_TAGS;
	return words;
}

/* ft_rest for the words of the outer headers, without a call. */
static __always_inline _Bool ft_rest_outer(const struct ft_key *k, const volatile __u64 *e, __u64 words)
{
	const __u32 filled = ft_filled(FT_CONST(need));
	__u64 at = words >> FT_E_REST & 63;

	_Pragma("unroll") for (int w = 2; w < FT_LEVEL_WORDS; w++)
	{
		if (!(filled >> w & 1) || !(words >> w & 1))
			continue;
		if ((k->w[w] & e[at]) != e[at + 1])
			return 0;
		at = (at + 2) & 63;
	}
	return 1;
}

/* The two hot words of a key, and its ports. */
struct ft_hot_key {
	__u64 hot, addr, ports;
};

/*
 * The two hot words of a key in registers. A call leaves the compiler few registers. So the words are put into the key before
 * one, and taken from there behind it.
 */
struct ft_hot {
	__u64 hot, addr;
};

static __always_inline void ft_put_hot(struct ft_key *k, const struct ft_hot *h)
{
	k->w[FT_W_HOT] = h->hot;
	k->w[FT_W_ADDR] = h->addr;
}

static __always_inline void ft_get_hot(const struct ft_key *k, struct ft_hot *h)
{
	h->hot = k->w[FT_W_HOT];
	h->addr = k->w[FT_W_ADDR];
}

/*
 * Returns 0 if the entry matches the addresses, the ports and the protocol. Few rules differ in the rest of FT_W_HOT alone,
 * so only a rule that matches this much is compared with all of it.
 */
static __always_inline __u64 ft_differs(const volatile __u64 *e, const struct ft_hot_key *h)
{
	return ((h->addr & e[2]) ^ e[3]) | ft_outside_bounds(h->ports, e + 4);
}

/* Returns the entry of the rule if it matches, or NULL. */
static __always_inline const volatile __u64 *ft_one(const struct ft_key *k, const struct ft_hot_key *h, __u64 rule)
{
	const volatile __u64 *e = ft_tree_entry(rule);

	if (ft_differs(e, h) || ((h->hot & e[6]) != e[7]))
		return NULL;
	__u64 words = e[0];

	if (!(words & FT_E_MORE))
		return e;
	FT_ASIDE;
	/* A rule of words that the parser does not fill is found by the next programs. */
	if (FT_CONST(need) >> FT_N_INNER) {
		if (words & ft_filled(-1ULL) & ~ft_filled(FT_CONST(need)))
			return NULL;
		if (words & FT_E_FIELDS & ~ft_filled(-1ULL))
			return ft_rest(k, rule) ? e : NULL;
	} else if (words & FT_E_FIELDS & ~ft_filled(FT_CONST(need))) {
		return NULL;
	}
	return ft_rest_outer(k, e, words) ? e : NULL;
}

/* Returns the first rule that matches, or 0, of the next n of a list from at on, at most most. */
static __always_inline __u64 ft_near(const struct ft_key *k, const struct ft_hot_key *h, __u64 at, __u32 n, __u32 most)
{
	/* Behind the last word the map has room for a list. */
	const volatile __u32 *list = (volatile __u32 *)((volatile __u64 *)ft_opaque(ft_tree) + (at & FT_CONST(tree_mask)));

#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < most && i < n; i++) {
		__u64 rule = list[i];

		if (ft_one(k, h, rule))
			return rule;
	}
	return 0;
}

/* ft_near for at most FT_TREE_STEP rules behind the first FT_TREE_NEAR. Global, so that the verifier looks at it once. */
__noinline __u64 ft_list(const struct ft_key *k, __u32 at, __u32 n)
{
	if (!k)
		return 0;
	struct ft_hot_key h = { k->w[FT_W_HOT], k->w[FT_W_ADDR], ft_ports(k->w[FT_W_HOT]) };

	return ft_near(k, &h, at, n, FT_TREE_STEP);
}

#define FT_NEAR (FT_CONST(need) & FT_N_BEHIND ? FT_TREE_FEW : FT_TREE_NEAR)

/*
 * The rule of the trees of a class that wins over found, which has rank. words has the two hot words of the key, k the others.
 * Without calls on the way of most packets: the return from a function costs some CPUs as much as five loads.
 */
static __always_inline __u64 ft_trees(struct ft_key *k, struct ft_hot *words, __u64 class, __u64 found, __u64 rank)
{
	/* 0; the verifier does not know that, and so does not follow the walk again for each class and protocol. */
	const __u64 zero = ft_node(FT_CLASSES);
	__u64 n, at = 0;
	__u32 groups = 1;

	words->hot ^= zero;
	n = ft_node(class ^ zero);
	struct ft_hot_key h = { words->hot, words->addr, ft_ports(words->hot) };

	if (FT_KIND(n) == FT_FORK) {
		at = FT_BASE(n);
		groups = FT_COUNT(n);
		n = ft_node(at);
	}
#pragma clang loop unroll(disable)
	for (__u32 g = 1; g <= FT_TREE_GROUPS; g++) {
		const volatile __u64 *e = NULL;

#pragma clang loop unroll(disable)
		for (int i = 0; i < FT_TREE_CUTS && FT_IS_CUT(n); i++) {
			__u64 w = n >> 3 & 31, v;

			/*
			 * A cut stays when the last rule goes that looks at its word. Each of its children has all other rules, so
			 * any one is right, and any value takes to one.
			 */
			if (w <= FT_W_ADDR || !(FT_CONST(need) & (FT_N_IPV6 | FT_N_BEHIND))) {
				v = w ? h.addr : h.hot;
			} else {
				if (w >= FT_WORDS)
					return found;
				v = k->w[w];
			}
			v = bpf_be64_to_cpu(v); /* kept as numbers they would exceed the stack of Linux 6.1 */
			n = ft_node(FT_BASE(n) + (ft_shift(v, n >> 8) & FT_COUNT(n)));
		}
		if (n)
			e = ft_one(k, &h, n);
		if (!e && FT_KIND(n)) {
			__u64 rule;
			__u32 base = FT_LIST_BASE(n), count = FT_LIST_COUNT(n) - 1;

			rule = ft_near(k, &h, base, count, FT_NEAR);
			if (!rule && count > FT_NEAR) {
				base += FT_NEAR / 2;
				count -= FT_NEAR;
				ft_put_hot(k, words);
#pragma clang loop unroll(disable)
				for (__u32 i = 0; i < FT_TREE_LIST && i < count && !rule; i += FT_TREE_STEP)
					rule = ft_list(k, base + i / 2, count - i);
				ft_get_hot(k, words);
				h = (struct ft_hot_key){ words->hot, words->addr, ft_ports(words->hot) };
			}
			if (rule)
				e = ft_tree_entry(rule);
		}
		if (e) {
			__u64 r = e[1];

			if (r < rank) {
				rank = r;
				found = e[0];
			}
		}
		at += 2;
		if (g >= groups || ft_node(at + 1) >= rank)
			break;
		n = ft_node(at);
	}
	return found;
}
