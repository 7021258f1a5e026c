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
#define FT_TREE_STEP 32 /* rules of a leaf that the verifier follows one by one */

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

static __always_inline _Bool ft_entry_matches(const volatile struct ft_config *c, const struct ft_key *k, __u64 slot)
{
	const volatile __u64 *e = ft_tree_entry(c, slot);
	__u64 hot = k->w[FT_W_HOT];

	if (((hot & e[2]) ^ e[3]) | ((k->w[FT_W_ADDR] & e[4]) ^ e[5]) | ft_outside_ranges(bpf_be64_to_cpu(hot), e[6]))
		return 0;
	return !e[0] || ft_rest(k, slot);
}

/* The first slot of n that matches, or 0, of at most FT_TREE_STEP. */
__noinline __u64 ft_list(const struct ft_key *k, __u32 at, __u32 n)
{
	const volatile struct ft_config *c = ft_config();

	if (!k)
		return 0;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < FT_TREE_STEP && i < n; i++) {
		__u64 slot = ft_node(c, at + i);

		if (ft_entry_matches(c, k, slot))
			return slot;
	}
	return 0;
}

/* The slot of the best rule of a tree, or 0. This function and the next are global, so that the verifier looks at each once. */
__noinline __u64 ft_descend(const struct ft_key *k, __u64 n)
{
	const volatile struct ft_config *c = ft_config();
	__u64 slot = 0;

	if (!k)
		return 0;
#pragma clang loop unroll(disable)
	for (int i = 0; i < FT_TREE_CUTS && FT_KIND(n) == FT_CUT; i++) {
		__u64 w = n >> 3 & 31;

		if (w >= FT_WORDS)
			return 0;
		n = ft_node(c, FT_BASE(n) + (bpf_be64_to_cpu(k->w[w]) >> (n >> 8 & 63) & FT_COUNT(n)));
	}
	if (!FT_KIND(n))
		return n && ft_entry_matches(c, k, n) ? n : 0;
	__u32 first = FT_BASE(n), count = FT_COUNT(n);

#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < FT_TREE_LIST && i < count && !slot; i += FT_TREE_STEP)
		slot = ft_list(k, first + i, count - i);
	return slot;
}

/* The rule of the trees of a class that wins over found, which has rank. */
__noinline __u64 ft_walk(const struct ft_key *k, __u32 class, __u64 found, __u64 rank)
{
	const volatile struct ft_config *c = ft_config();

	if (!k || class >= FT_CLASSES)
		return found;
	__u64 n = ft_node(c, class), at = FT_BASE(n);
	__u32 groups = 1;

	if (FT_KIND(n) == FT_FORK)
		groups = FT_COUNT(n);
	else if (!n)
		return found;
	else
		at = class;
#pragma clang loop unroll(disable)
	for (__u32 g = 0; g < FT_TREE_GROUPS && g < groups; g++) {
		if (at >= FT_CLASSES && ft_node(c, at + 1) >= rank)
			break;
		__u64 slot = ft_descend(k, ft_node(c, at));

		at += 2;
		if (slot) {
			__u64 r = ft_tree_entry(c, slot)[1];

			if (r < rank) {
				rank = r;
				found = slot;
			}
		}
	}
	return found;
}
