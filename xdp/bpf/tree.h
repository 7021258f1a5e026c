/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once
/*
 * Rules of any mask and with port ranges: decision trees that are data. One program walks them, so a
 * change of rules is a change of words in ft_tree. Package xdp/tree builds the trees, specifies their
 * words (node.go), and walks them in Go as this file does.
 *
 * An entry of a tree is: bitmap of its words above FT_W_ADDR, with FT_E_INNER and the place of the first of
 * them, or 0; rank; mask and key of FT_W_HOT; mask and key of FT_W_ADDR; ranges of the outer ports; ranges
 * of the inner ports if FT_E_INNER; mask and key of each word of the bitmap. So a rule on the IPv4 5-tuple takes 64 bytes,
 * which are one line of the cache.
 */
#include "counters.h"

#define FT_E_INNER (1u << 31)
#define FT_E_REST 32 /* shift */
#define FT_E_RANGES 6

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
#define FT_TREE_STEP 32 /* rules of a leaf that the verifier follows one by one in a function, */
#define FT_TREE_NEAR 16	/* and that it follows in the walk itself */

#define FT_KIND(n) ((n) & 6)
#define FT_CUT 2
#define FT_LIST 4
#define FT_FORK 6
#define FT_COUNT(n) ((n) >> 16 & 0xffff)
#define FT_BASE(n) ((n) >> 32)

static __always_inline __u64 ft_node(const volatile struct ft_config *c, __u64 at)
{
	return ((volatile __u64 *)ft_opaque(ft_tree))[at & c->tree_mask];
}

static __always_inline __u32 ft_class_of(const struct ft_key *k)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	__u32 flags = k->w[FT_W_HOT] >> 48;
#else
	__u32 flags = k->w[FT_W_HOT];
#endif
	return flags & FT_IPV4 ? FT_C_IPV4 : flags & FT_IPV6 ? FT_C_IPV6 : FT_C_OTHER;
}

static __always_inline const volatile __u64 *ft_tree_entry(const volatile struct ft_config *c, __u64 slot)
{
	return (void *)ft_opaque(ft_entries) + (slot & c->entry_mask);
}

/*
 * Not 0 if the ports are outside. ranges: first and last source port, first and last destination port, 16 bits
 * each. ports: of a key, be64. Without branches: the verifier follows the loop over a list through each of
 * them, and it takes 8,192 of them in a row.
 */
static __always_inline __u64 ft_outside_ranges(__u64 ports, __u64 ranges)
{
	__u64 src = ports >> 48, dst = ports >> 32 & 0xffff;

	return ((src - (ranges & 0xffff)) | ((ranges >> 16 & 0xffff) - src) | (dst - (ranges >> 32 & 0xffff)) |
		((ranges >> 48) - dst)) >> 63;
}

/*
 * The part of an entry that few rules have. Where it begins is in the entry, so that the verifier does not know it:
 * it would follow every combination of words.
 */
__noinline int ft_rest(const struct ft_key *k, __u64 slot)
{
	const volatile struct ft_config *c = ft_config();
	const volatile __u64 *e = ft_tree_entry(c, slot);

	if (!k)
		return 0;
	__u64 words = e[0], at = words >> FT_E_REST & 63;

	if (words & FT_E_INNER && ft_outside_ranges(bpf_be64_to_cpu(k->w[FT_INNER + FT_W_HOT]), e[FT_E_RANGES + 1]))
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

/* No slot: the walk takes a word of the key that the caller does not have, or a list of more than FT_TREE_NEAR rules. */
#define FT_AGAIN 2

/* 1: the entry matches; 0: it does not; FT_AGAIN: k is NULL, and the entry has words above FT_W_ADDR. */
static __always_inline int ft_entry_matches(const volatile struct ft_config *c, const struct ft_key *k, __u64 hot, __u64 addr,
					    __u64 slot)
{
	const volatile __u64 *e = ft_tree_entry(c, slot);

	if (((hot & e[2]) ^ e[3]) | ((addr & e[4]) ^ e[5]) | ft_outside_ranges(bpf_be64_to_cpu(hot), e[6]))
		return 0;
	if (!e[0])
		return 1;
	return k ? ft_rest(k, slot) : FT_AGAIN;
}

/* The first slot of n that matches, or 0, of the first most. Without k also FT_AGAIN. */
static __always_inline __u64 ft_near(const volatile struct ft_config *c, const struct ft_key *k, __u64 hot, __u64 addr, __u64 at,
				     __u32 n, const __u32 most)
{
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < most && i < n; i++) {
		__u64 slot = ft_node(c, at + i);
		int matches = ft_entry_matches(c, k, hot, addr, slot);

		if (matches)
			return matches == 1 ? slot : FT_AGAIN;
	}
	return 0;
}

/* The same of at most FT_TREE_STEP rules behind the first FT_TREE_NEAR: global, so that the verifier looks at it once. */
__noinline __u64 ft_list(const struct ft_key *k, __u32 at, __u32 n)
{
	if (!k)
		return 0;
	return ft_near(ft_config(), k, k->w[FT_W_HOT], k->w[FT_W_ADDR], at, n, FT_TREE_STEP);
}

/*
 * The rule of the trees of a class that wins over found, which has rank. k is NULL for a key of which only hot and addr
 * are known. Then the result is FT_AGAIN if these do not decide. Without calls on the way of most packets: the return
 * from a function costs some CPUs as much as five loads.
 */
static __always_inline __u64 ft_trees(const volatile struct ft_config *c, const struct ft_key *k, __u64 hot, __u64 addr, __u32 class,
				      __u64 found, __u64 rank)
{
	__u64 n = ft_node(c, class), at = 0;
	__u32 groups = 1;

	if (!k)
		hot ^= ft_node(c, FT_CLASSES); /* 0; so the verifier does not follow the walk again for each protocol */
	if (FT_KIND(n) == FT_FORK) {
		at = FT_BASE(n);
		groups = FT_COUNT(n);
		n = ft_node(c, at);
	}
#pragma clang loop unroll(disable)
	for (__u32 g = 1; g <= FT_TREE_GROUPS; g++) {
		__u64 slot = 0;

#pragma clang loop unroll(disable)
		for (int i = 0; i < FT_TREE_CUTS && FT_KIND(n) == FT_CUT; i++) {
			__u64 w = n >> 3 & 31, v;

			if (k) {
				if (w >= FT_WORDS)
					return found;
				v = k->w[w];
			} else {
				if (w > FT_W_ADDR)
					return FT_AGAIN;
				v = w ? addr : hot;
			}
			n = ft_node(c, FT_BASE(n) + (bpf_be64_to_cpu(v) >> (n >> 8 & 63) & FT_COUNT(n)));
		}
		if (FT_KIND(n)) {
			__u32 first = FT_BASE(n), count = FT_COUNT(n);

			slot = ft_near(c, k, hot, addr, first, count, FT_TREE_NEAR);
			if (!slot && count > FT_TREE_NEAR) {
				if (!k)
					return FT_AGAIN;
#pragma clang loop unroll(disable)
				for (__u32 i = FT_TREE_NEAR; i < FT_TREE_LIST && i < count && !slot; i += FT_TREE_STEP)
					slot = ft_list(k, first + i, count - i);
			}
		} else if (n) {
			int matches = ft_entry_matches(c, k, hot, addr, n);

			if (matches)
				slot = matches == 1 ? n : FT_AGAIN;
		}
		if (!k && slot == FT_AGAIN)
			return slot;
		if (slot) {
			__u64 r = ft_tree_entry(c, slot)[1];

			if (r < rank) {
				rank = r;
				found = slot;
			}
		}
		at += 2;
		if (g >= groups || ft_node(c, at + 1) >= rank)
			break;
		n = ft_node(c, at);
	}
	return found;
}

/* The same, for any key: global, so that the verifier looks at it once. */
__noinline __u64 ft_walk(const struct ft_key *k, __u32 class, __u64 found, __u64 rank)
{
	if (!k || class >= FT_CLASSES)
		return found;
	return ft_trees(ft_config(), k, k->w[FT_W_HOT], k->w[FT_W_ADDR], class, found, rank);
}
