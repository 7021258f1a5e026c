/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once
/*
 * Is an address in a set of prefixes? Package xdp/members fills the tables and changes them under programs; its layout.go and
 * lookup.go are this file in Go. Every word is loaded once, as a whole, and each of the words by itself is right.
 */
#include <linux/types.h>

/* What a program knows of a set when it is loaded: members.Constants. Offsets are in bytes. */
struct ft_set {
	__u64 mul[4]; /* secret */
	__u64 fold;
	__u32 root; /* of the word with the place of the tables, 0: the set is empty */
	__u32 spare;
	__u32 top;  /* this and the next offsets are from the place of the tables; 0: no IPv4 */
	__u32 lines;
	__u32 slots4;
	__u32 shift4;
	__u32 filter; /* 0: no IPv6 */
	__u32 filter_shift;
	__u32 slots6;
	__u32 shift6;
	__u32 entries;
	__u32 flat; /* 1: there is a line for each 16 bits */
};

#define FT_LEVELS 26
#define FT_SCAN 16   /* lines from its home within which a key lies */
#define FT_LINE 64   /* bytes */
#define FT_ALL 1     /* in the top and in a line; 0: none */
#define FT_SOME 2

#define FT_MAX_SETS 64

const volatile struct ft_set ft_sets[FT_MAX_SETS];
const volatile __u32 ft_members_last; /* where the last line of the memory begins: members.Last */

/* The tables of all sets. Behind the last one is another line: a program checks an offset once for the 64 bytes behind it. */
__u64 ft_members[8] SEC(".data.members");

/*
 * A pointer to 64 bytes of the memory. The verifier knows no bound of an offset that was loaded; no offset exceeds this one. The
 * assembly keeps the offset in the register that was compared: the verifier of 6.1 does not know what the compiler does.
 */
#define FT_MEMBERS(at)                                         \
	({                                                     \
		__u64 _at = (at);                              \
		__u64 *_p = ft_members;                        \
                                                               \
		asm volatile("" : "+r"(_at));                  \
		if (_at > ft_members_last)                     \
			return 0;                              \
		asm volatile("" : "+r"(_p), "+r"(_at));        \
		(const volatile __u64 *)((void *)_p + _at);    \
	})

static __always_inline __u64 ft_set_fold(const volatile struct ft_set *set, __u64 h)
{
	h ^= h >> 32;
	h *= set->fold;
	return h ^ h >> 29;
}

/* Reports whether a set has an address of IPv4, in the order of the host. */
static __always_inline _Bool ft_member4(const __u32 number, __u32 address)
{
	const volatile struct ft_set *set = &ft_sets[number];

	if (!set->top)
		return 0;
	const __u64 a = address, base = *FT_MEMBERS(set->root);

	if (!base)
		return 0;
	__u64 entry, line;

	/* Of a great set, no place depends on a load: the CPU predicts what the loads say, and waits for all at once. */
	if (set->flat) {
		entry = *FT_MEMBERS(base + set->top + (a >> 21) * 8) >> (a >> 15 & 62) & 3;
		line = a >> 16;
	} else {
		entry = (__u32)(*FT_MEMBERS(base + set->top + (a >> 17) * 8) >> (a >> 16 & 1) * 32);
		line = entry - FT_SOME;
	}
	if (entry <= FT_ALL)
		return entry;
	const __u64 code = *FT_MEMBERS(base + set->lines + line * FT_LINE + (a >> 13 & 7) * 8) >>
			   (a >> 7 & 62) & 3;

	if (code <= FT_ALL)
		return code;
	const __u64 key = a >> 5 | 1 << 27;
	__u64 at = base + set->slots4 + (ft_set_fold(set, key * set->mul[0] + set->mul[1]) >> set->shift4) * FT_LINE;

	/* All slots of a line are compared: the CPU predicts that better than the number of those that are used. */
#pragma clang loop unroll(disable)
	for (int lines = 0; lines < FT_SCAN; lines++) {
		const volatile __u64 *slots = FT_MEMBERS(at);
		__u64 slot;

#pragma unroll
		for (int i = 0; i < 8; i++) {
			slot = slots[i];
			if (slot >> 32 == key)
				return slot >> (a & 31) & 1;
		}
		if (!slot)
			return 0;
		at += FT_LINE;
	}
	return 0;
}

/*
 * The bits of a key of IPv6 in its level: of 32 addresses, or of 32 prefixes of the longest that the level has. Global, so that the
 * verifier looks at it once: inlined, it takes half a million instructions of the verifier for each use of a set.
 */
__noinline __u32 ft_level(__u32 number, __u64 base, __u64 hi, __u64 lo)
{
	if (number >= FT_MAX_SETS)
		return 0;
	const volatile struct ft_set *set = &ft_sets[number];
	const __u64 h = ft_set_fold(set, (__u64)(__u32)hi * set->mul[0] + (hi >> 32) * set->mul[1] +
						 (__u64)(__u32)lo * set->mul[2] + (lo >> 32) * set->mul[3]);
	const __u64 tag = (h & 0xff) | 1;
	__u64 at = base + set->slots6 + (h >> set->shift6) * FT_LINE;

#pragma clang loop unroll(disable)
	for (int lines = 0; lines < FT_SCAN; lines++) {
		const volatile __u64 *slots = FT_MEMBERS(at);
		__u64 slot;

#pragma unroll
		for (int i = 0; i < 8; i++) {
			slot = slots[i];
			if (slot >> 56 == tag) {
				const volatile __u64 *key = FT_MEMBERS(base + set->entries + (slot >> 32 & 0xffffff) * 16);

				if (key[0] == hi && key[1] == lo)
					return slot;
			}
		}
		if (!slot)
			return 0;
		at += FT_LINE;
	}
	return 0;
}

/* Reports whether a set has an address of IPv6, in the order of the host. */
static __always_inline _Bool ft_member6(const __u32 number, __u64 hi, __u64 lo)
{
	const volatile struct ft_set *set = &ft_sets[number];

	if (!set->filter)
		return 0;
	const __u64 base = *FT_MEMBERS(set->root);

	if (!base)
		return 0;
	const __u64 i = ft_set_fold(set, (hi >> 32) * set->mul[2] + set->mul[3]) >> set->filter_shift;
	__u32 levels = *FT_MEMBERS(base) | *FT_MEMBERS(base + set->filter + (i >> 1) * 8) >> (i & 1) * 32;

	/* Of each level: the bits of the address that are no part of the key, and five of them behind it. */
	for (__u32 level = 0; level < FT_LEVELS && levels; level++, levels >>= 1) {
		if (!(levels & 1))
			continue;
		const __u32 d = 5 * level - 2; /* at level 0 it wraps */
		__u64 khi = hi, klo = level, five;

		if (!level) {
			khi = 0;
			five = hi >> 61;
		} else if (d < 60) {
			khi &= ~(~0ULL >> d);
			five = hi >> (59 - d);
		} else if (d < 64) {
			khi &= ~(~0ULL >> d);
			five = hi << 4 | lo >> 60;
		} else {
			klo |= lo & ~(~0ULL >> (d - 64));
			five = lo >> (123 - d);
		}
		if (ft_level(number, base, khi, klo) >> (five & 31) & 1)
			return 1;
	}
	return 0;
}
