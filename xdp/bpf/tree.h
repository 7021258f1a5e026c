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
#define FT_TREE_STEP 32 /* rules of a leaf that the verifier follows one by one in a function, */
#define FT_TREE_NEAR 16	/* that it follows in the walk itself, */
#define FT_TREE_FAR 64	/* and behind these in ft_far */

#define FT_KIND(n) ((n) & 6)
#define FT_CUT 2
#define FT_LIST 4
#define FT_FORK 6
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

static __always_inline __u32 ft_class_of(const struct ft_key *k)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	__u32 flags = k->w[FT_W_HOT] >> 48;
#else
	__u32 flags = k->w[FT_W_HOT];
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

	return v >> 48 | (v >> 7 & 0xff << 17) | (v & 0xffffULL << 32);
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

/* In place of a rule: the walk takes a word of the key that the caller lacks, or a list of more rules than ft_far follows. */
#define FT_AGAIN 2

/* The two hot words of a key, and its ports. */
struct ft_hot_key {
	__u64 hot, addr, ports;
};

/*
 * Returns 0 if the entry matches the addresses, the ports and the protocol. Few rules differ in the rest of FT_W_HOT alone,
 * so only a rule that matches this much is compared with all of it.
 */
static __always_inline __u64 ft_differs(const volatile __u64 *e, const struct ft_hot_key *h)
{
	return ((h->addr & e[2]) ^ e[3]) | ft_outside_bounds(h->ports, e + 4);
}

/* Returns the rule if it matches, or 0. Without k also FT_AGAIN. */
static __always_inline __u64 ft_one(const struct ft_key *k, const struct ft_hot_key *h, __u64 rule)
{
	const volatile __u64 *e = ft_tree_entry(rule);

	if (ft_differs(e, h) || ((h->hot & e[6]) != e[7]))
		return 0;
	if (!(e[0] & FT_E_MORE))
		return rule;
	if (!k)
		return FT_AGAIN;
	return ft_rest(k, rule) ? rule : 0;
}

/* Returns the first rule that matches, or 0, of the next n of a list from at on, at most most. Without k also FT_AGAIN. */
static __always_inline __u64 ft_near(const struct ft_key *k, const struct ft_hot_key *h, __u64 at, __u32 n, const __u32 most)
{
	/* Behind the last word the map has room for a list. */
	const volatile __u32 *list = (volatile __u32 *)((volatile __u64 *)ft_opaque(ft_tree) + (at & FT_CONST(tree_mask)));

#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < most && i < n; i++) {
		__u64 rule = ft_one(k, h, list[i]);

		if (rule)
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

/*
 * ft_near for a key of which only hot and addr are known, and at most FT_TREE_FAR rules. A function, because the verifier
 * would follow the path behind an inlined list once for each of its rules.
 */
__noinline __u64 ft_far(__u64 hot, __u64 addr, __u32 at, __u32 n)
{
	const struct ft_hot_key h = { hot, addr, ft_ports(hot) };

	return ft_near(NULL, &h, at, n, FT_TREE_FAR);
}

/*
 * The rule of the trees of a class that wins over found, which has rank. k is NULL for a key of which only hot and addr
 * are known. Then the result is FT_AGAIN if these do not decide. Without calls on the way of most packets: the return
 * from a function costs some CPUs as much as five loads.
 */
static __always_inline __u64 ft_trees(const struct ft_key *k, __u64 hot, __u64 addr, __u32 class, __u64 found, __u64 rank)
{
	__u64 n = ft_node(class), at = 0;
	__u32 groups = 1;

	if (!k)
		hot ^= ft_node(FT_CLASSES); /* 0; so the verifier does not follow the walk again for each protocol */
	const struct ft_hot_key h = { hot, addr, ft_ports(hot) };

	if (FT_KIND(n) == FT_FORK) {
		at = FT_BASE(n);
		groups = FT_COUNT(n);
		n = ft_node(at);
	}
#pragma clang loop unroll(disable)
	for (__u32 g = 1; g <= FT_TREE_GROUPS; g++) {
		__u64 rule = 0;

#pragma clang loop unroll(disable)
		for (int i = 0; i < FT_TREE_CUTS && FT_KIND(n) == FT_CUT; i++) {
			__u64 w = n >> 3 & 31, v;

			if (k) {
				if (w >= FT_WORDS)
					return found;
				v = bpf_be64_to_cpu(k->w[w]);
			} else {
				if (w > FT_W_ADDR)
					return FT_AGAIN;
				v = bpf_be64_to_cpu(w ? addr : hot); /* kept as numbers they would exceed the stack of Linux 6.1 */
			}
			n = ft_node(FT_BASE(n) + (ft_shift(v, n >> 8) & FT_COUNT(n)));
		}
		if (n)
			rule = ft_one(k, &h, n);
		if (!rule && FT_KIND(n)) {
			__u32 base = FT_LIST_BASE(n), count = FT_LIST_COUNT(n) - 1;

			rule = ft_near(k, &h, base, count, FT_TREE_NEAR);
			if (!rule && count > FT_TREE_NEAR) {
				base += FT_TREE_NEAR / 2;
				count -= FT_TREE_NEAR;
				if (!k) {
					if (count > FT_TREE_FAR)
						return FT_AGAIN;
					rule = ft_far(hot, addr, base, count);
				}
#pragma clang loop unroll(disable)
				for (__u32 i = 0; k && i < FT_TREE_LIST && i < count && !rule; i += FT_TREE_STEP)
					rule = ft_list(k, base + i / 2, count - i);
			}
		}
		if (!k && rule == FT_AGAIN)
			return FT_AGAIN;
		if (rule) {
			const volatile __u64 *e = ft_tree_entry(rule);
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

/* ft_trees for any key. Global, so that the verifier looks at it once. */
__noinline __u64 ft_walk(const struct ft_key *k, __u32 class, __u64 found, __u64 rank)
{
	if (!k || class >= FT_CLASSES)
		return found;
	return ft_trees(k, k->w[FT_W_HOT], k->w[FT_W_ADDR], class, found, rank);
}
