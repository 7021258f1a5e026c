/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once
/*
 * The classifier: tuple space search over the few masks that are hashed, one open-addressing table
 * of slots for all of them, no helper; then the trees (tree.h).
 *
 * A slot is one 64-bit word (counters.h). 0 is empty and ends a probe; a tombstone
 * has no entry and no tag and does not. A tag is never 0. The first FT_MAX_TUPLES slots belong to the tuples of one
 * key: that key is a constant of the load, and the slot says whether it has a rule now.
 *
 * An entry is 16-byte units: the words of the key under the mask, those only
 * that the mask has. Its rank stands by itself behind all units. It does not
 * change while a slot points at it, and is used again only after an RCU grace period.
 */
#include "common.h"
#include "tree.h"

#define FT_PROBES 32  /* slots from its home within which an entry lies */
#define FT_ATTEMPTS 4 /* entries of its tag that a probe compares */
#define FT_NO_RANK (~0ULL)

__u64 ft_slots[8] SEC(".data.slots");
/*
 * By place: the lowest rank of this tuple, of all behind it, and of the trees, which are behind the last. 0 while programs
 * are exchanged: then places mean two things.
 */
__u64 ft_ranks[FT_MAX_TUPLES + 1] SEC(".data.ranks");

#define FT_WORD(k, hot, addr, w) ((w) == FT_W_HOT ? (hot) : (w) == FT_W_ADDR ? (addr) : (k)->w[w])

/* Body for each word w of words. */
#define FT_EACH(words, body) _Pragma("unroll") for (int w = 0; w < FT_WORDS; w++) if ((words) & (1u << w)) body

static __always_inline const __u64 *ft_entry(__u64 slot)
{
	return (void *)ft_opaque(ft_entries) + (slot & FT_CONST(entry_mask));
}

/* The rank of the entry: kept apart, because most packets need no rank and their words are then in
 * fewer cache lines. */
static __always_inline __u64 ft_rank(__u64 slot)
{
	return *(const volatile __u64 *)((void *)ft_opaque(ft_entries) + FT_CONST(rank_base) +
					 ((slot & FT_CONST(entry_mask)) >> 1));
}

/*
 * The hash is secret to senders of packets: the high half of a sum of 32-bit words by random
 * multipliers is strongly universal, so no set of keys collides more often than chance, and the
 * fold keeps arithmetic progressions of keys (addresses in a row) from lying in a row.
 */
static __always_inline __u64 ft_mix(__u64 v, __u32 w)
{
	return (__u64)(__u32)v * FT_CONST(mul[w][0]) + (v >> 32) * FT_CONST(mul[w][1]);
}

static __always_inline __u64 ft_fold(__u64 h)
{
	h ^= h >> 32;
	h *= FT_CONST(fold);
	return h ^ h >> 29;
}

/*
 * Hash and comparison, twice. The first form has the two hottest words in registers. It is unrolled
 * over all words, and package fold cuts it down to the words of one mask. It serves the
 * first FT_NEAR_TUPLES tuples, where most packets of most rule sets end. The second form is a loop, and serves the
 * others: if it were unrolled for all words of every tuple, the program would be so long that its
 * jumps do not reach.
 */
#define FT_NEAR_TUPLES 2

static __always_inline __u64 ft_hash(const struct ft_key *k, __u64 hot, __u64 addr, const __u32 place)
{
	__u64 h = FT_CONST(tuple[place].seed);

	FT_EACH(FT_CONST(tuple[place].words), { h += ft_mix(FT_WORD(k, hot, addr, w) & FT_CONST(tuple[place].mask[w]), w); })
	return ft_fold(h);
}

static __always_inline _Bool ft_equal(const struct ft_key *k, __u64 hot, __u64 addr, const __u64 *e, const __u32 place)
{
	FT_EACH(FT_CONST(tuple[place].words), {
		if ((FT_WORD(k, hot, addr, w) & FT_CONST(tuple[place].mask[w])) != *(const volatile __u64 *)e)
			return 0;
		e++;
		asm volatile("" : "+r"(e));
	})
	return 1;
}

static __always_inline __u64 ft_hash_loop(const struct ft_key *k, const volatile struct ft_tuple *t)
{
	__u64 h = t->seed;

	for (__u32 i = 0; i < FT_WORDS && i < t->n; i++) {
		__u32 w = t->word[i];

		if (w >= FT_WORDS)
			break;
		h += ft_mix(k->w[w] & t->mask[w], w);
	}
	return ft_fold(h);
}

static __always_inline _Bool ft_equal_loop(const struct ft_key *k, const volatile struct ft_tuple *t, const __u64 *e)
{
	for (__u32 i = 0; i < FT_WORDS && i < t->n; i++) {
		__u32 w = t->word[i];

		if (w >= FT_WORDS || (k->w[w] & t->mask[w]) != ((const volatile __u64 *)e)[i])
			return 0;
	}
	return 1;
}

/* Returns the next slot of this tag from h on, within FT_PROBES slots; 0 without one. */
static __always_inline __u64 ft_probe(__u64 *h, __u64 tag)
{
	const volatile __u64 *slots = ft_opaque(ft_slots) + FT_MAX_TUPLES;

#pragma clang loop unroll(disable)
	for (int i = 0; i < FT_PROBES; i++) {
		__u64 slot = slots[*h & FT_CONST(slot_mask)];

		*h += 1;
		if (!slot)
			return 0;
		if (FT_TAG(slot) == tag)
			return slot;
	}
	return 0;
}

/* The slot of the one key of a tuple. */
static __always_inline __u64 ft_single(const __u32 place)
{
	return *(volatile __u64 *)((void *)ft_opaque(ft_slots) + FT_CONST(tuple[place].single));
}

/*
 * Returns the slot of a key in one tuple, or 0. Global, so that the verifier looks
 * at it once, by itself, for any place. Inlined or static, it would be verified again
 * for every tuple and every way to the search, which makes more than a million instructions.
 */
__noinline __u64 ft_try(const struct ft_key *k, __u32 place)
{
	if (!k || place >= FT_MAX_TUPLES)
		return 0;
	const volatile struct ft_tuple *t = ft_tuple(place);
	__u64 at;

	if (t->flags & FT_T_SINGLE) {
		for (__u32 i = 0; i < FT_WORDS && i < t->n; i++) {
			__u32 w = t->word[i];

			if (w >= FT_WORDS || (k->w[w] & t->mask[w]) != t->key[w])
				return 0;
		}
		/* The verifier does not know which tuple this is. */
		return ((volatile __u64 *)ft_opaque(ft_slots))[t->id & (FT_MAX_TUPLES - 1)];
	}
	__u64 pos = ft_hash_loop(k, t);
	const __u64 tag = FT_TAG(pos) | 1;

	for (int a = 0; a < FT_ATTEMPTS; a++) {
		at = ft_probe(&pos, tag);
		if (!at || ft_equal_loop(k, t, ft_entry(at)))
			return at;
	}
	return 0;
}

/* Looks at the tuples from place on. found and rank are the result of the tuples before. */
static __noinline __u64 ft_search(const struct ft_key *k, __u32 place, __u64 found, __u64 rank)
{
	const __u32 n = FT_CONST(tuples);

	for (; place < FT_MAX_TUPLES && place < n; place++) {
		if (((volatile __u64 *)ft_ranks)[place] >= rank)
			break;
		__u64 slot = ft_try(k, place);

		if (slot) {
			__u64 r = ft_rank(slot);

			if (r < rank) {
				rank = r;
				found = slot;
			}
		}
	}
	return found;
}

/*
 * ft_try for one of the first tuples and a key of which hot and addr are in registers.
 * Another key with the tag of this one is left to the function: a second attempt
 * would cost the verifier much and save one packet in 16,384 little.
 */
static __always_inline __u64 ft_try_near(struct ft_key *k, struct ft_hot *h, const __u32 place)
{
	const __u64 hot = h->hot, addr = h->addr;

	if (FT_CONST(tuple[place].flags) & FT_T_SINGLE) {
		FT_EACH(FT_CONST(tuple[place].words), {
			if ((FT_WORD(k, hot, addr, w) & FT_CONST(tuple[place].mask[w])) != FT_CONST(tuple[place].key[w]))
				return 0;
		})
		return ft_single(place);
	}
	__u64 pos = ft_hash(k, hot, addr, place);
	__u64 at = ft_probe(&pos, FT_TAG(pos) | 1);

	if (!at || ft_equal(k, hot, addr, ft_entry(at), place))
		return at;
	ft_put_hot(k, h);
	at = ft_try(k, place);
	ft_get_hot(k, h);
	return at;
}

/* What the search takes in registers. */
struct ft_parsed {
	struct ft_hot h;
	__u32 class;
};

/* Reports whether tuple place is the last of the search, and no trees follow. */
#define FT_IS_LAST(place) (FT_CONST(tuples) == (place) + 1 && !FT_CONST(tree_mask))

/* Reports whether the rules from place on have no chance against rank. */
#define FT_IS_BEATEN(place, rank) (((volatile __u64 *)ft_ranks)[place] >= (rank))

/*
 * Returns the slot of the rule that wins, or 0. is has the two hot words of the key, k the others. A constant is loaded where it
 * is used: the compiler would put it on the stack, where package fold does not follow it.
 */
static __always_inline __u64 ft_classify(struct ft_key *k, struct ft_parsed *is)
{
	struct ft_hot *h = &is->h;
	__u64 slot = 0, rank = FT_NO_RANK;

	if (FT_CONST(tuples)) {
		slot = ft_try_near(k, h, 0);
		if (FT_IS_LAST(0))
			return slot;
		if (slot)
			rank = ft_rank(slot);
		if (FT_IS_BEATEN(1, rank))
			return slot;
	}
	if (FT_CONST(tuples) >= FT_NEAR_TUPLES) {
		__u64 other = ft_try_near(k, h, 1);

		if (other) {
			__u64 r = ft_rank(other);

			if (r < rank) {
				rank = r;
				slot = other;
			}
		}
		if (FT_IS_LAST(1))
			return slot;
		if (FT_IS_BEATEN(2, rank))
			return slot;
	}
	if (FT_CONST(tuples) > FT_NEAR_TUPLES) {
		ft_put_hot(k, h);
		slot = ft_search(k, FT_NEAR_TUPLES, slot, rank);
		ft_get_hot(k, h);
		if (!FT_CONST(tree_mask))
			return slot;
		if (slot)
			rank = ft_rank(slot);
		if (FT_IS_BEATEN(FT_CONST(tuples), rank))
			return slot;
	}
	if (FT_CONST(tree_mask))
		slot = ft_trees(k, h, is->class, slot, rank);
	return slot;
}

static __always_inline _Bool ft_is_tag(__u16 type)
{
	return type == FT_TAG_8100 || type == FT_TAG_88A8;
}

/* Reports whether an EtherType alone tells that no rule matches the frame. */
static __always_inline _Bool ft_outside(__u16 type)
{
	const __u32 classes = FT_CONST(classes);

	if (FT_CONST(layer3) || classes & 1 << FT_C_OTHER)
		return 0;
	switch (type) {
	case bpf_htons(ETH_P_IP):
		return !(classes & 1 << FT_C_IPV4);
	case bpf_htons(ETH_P_IPV6):
		return !(classes & 1 << FT_C_IPV6);
	case FT_TAG_8100:
	case FT_TAG_88A8:
		return 0;
	}
	return 1;
}

/* What a parser of common frames has found. */
enum ft_outcome {
	FT_PARSED,
	FT_MATCHES, /* the only rule */
	FT_NO_RULE, /* without a key, no rule matches */
	FT_UNCOMMON,
};

/* Parses a common frame behind its tag t, if it has one. The EtherType is 12 bytes behind p. */
static __always_inline enum ft_outcome ft_parse_untagged(struct ft_tagged t, void *p, void *end, struct ft_key *k,
							  struct ft_parsed *to)
{
	if (p + FT_COMMON_MIN > end)
		return FT_UNCOMMON;
	if (FT_IS_COMMON4(p)) {
		to->class = FT_C_IPV4;
		return ft_parse_common4(t, p, end, k, &to->h.hot, &to->h.addr) ? FT_PARSED : FT_UNCOMMON;
	}
	if (FT_CONST(need) & FT_N_IPV6 && FT_IS_COMMON6(p)) {
		to->class = FT_C_IPV6;
		return ft_parse_common6(t, p, end, k, &to->h.hot, &to->h.addr) ? FT_PARSED : FT_UNCOMMON;
	}
	return ft_outside(ft_load16(p, 12)) ? FT_NO_RULE : FT_UNCOMMON;
}

/* Parses a common frame with a tag in front of its EtherType. */
static __always_inline enum ft_outcome ft_parse_tagged(void *start, void *end, struct ft_key *k, struct ft_parsed *to)
{
	if (start + ETH_HLEN + 4 > end || !ft_is_tag(ft_load16(start, 12)))
		return FT_UNCOMMON;
	const struct ft_tagged t = { start, FT_HOT_TAG1, FT_PACK(ft_load16(start, 14), 0, 2) };

	return ft_parse_untagged(t, start + 4, end, k, to);
}

/* Parses a common frame. beside: as ft_parse_outer has it. */
static __always_inline enum ft_outcome ft_parse_common(void *start, void *end, struct ft_key *k, __u32 beside,
							struct ft_parsed *to)
{
	struct ft_tagged t = { start };

	if (beside) {
		if (beside & ~(FT_TAG_BESIDE | 0xffff))
			return FT_UNCOMMON;
		t.flags = FT_HOT_TAG1;
		t.tags = FT_PACK((__u16)beside, 0, 2);
	}
	enum ft_outcome o = ft_parse_untagged(t, start, end, k, to);

	return o == FT_UNCOMMON && !beside ? ft_parse_tagged(start, end, k, to) : o;
}

/* v & mask, in the register of v: the compiler would copy v into that of the mask. */
static __always_inline __u64 ft_under(__u64 v, __s64 mask)
{
	asm volatile("%0 &= %1" : "+r"(v) : "r"(mask));
	return v;
}

/* Bytes 2 and 3 of a word of 4, as a number. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define FT_UPPER(v) ((v) >> 16)
#else
#define FT_UPPER(v) ((v) & 0xffff)
#endif

/* Reports whether 4 bytes of the frame differ from those of the only rule. A destination port alone is compared without a mask. */
#define FT_DIFFERS(p, off, field)                                                                                    \
	(FT_CONST(one.field##_mask) == FT_WORD32(0, 0, 0xff, 0xff) ?                                                 \
		 ft_load16(p, (off) + 2) != FT_UPPER(FT_CONST(one.field)) :                                          \
		 (__u32)ft_under(ft_load32(p, off), FT_CONST(one.field##_mask)) != FT_CONST(one.field))

/* ft_match_one for a frame with a plain header of IPv4. The EtherType is 12 bytes behind p. */
static __always_inline enum ft_outcome ft_match_one4(void *p)
{
	if (FT_DIFFERS(p, 20, proto)) {
		FT_ASIDE;
		return ft_load16(p, 20) & bpf_htons(0x3fff) ? FT_UNCOMMON : FT_NO_RULE;
	}
	if (FT_DIFFERS(p, 34, ports) || FT_DIFFERS(p, 30, dst) || FT_DIFFERS(p, 26, src)) {
		FT_ASIDE;
		return FT_NO_RULE;
	}
	return FT_MATCHES;
}

/* Compares a frame with the only rule, which is in ft_conf.one. */
static __always_inline enum ft_outcome ft_match_one(void *p, void *end)
{
	if (p + FT_COMMON_MIN > end) {
		FT_ASIDE;
		return FT_UNCOMMON;
	}
	if (FT_IS_COMMON4(p))
		return ft_match_one4(p);
	FT_ASIDE;

	/* Loaded again: the compiler would keep a copy of the longer word, also for the frames above. */
	__u16 type = *(const volatile __u16 *)(p + 12);

	if (!ft_is_tag(type))
		return ft_outside(type) ? FT_NO_RULE : FT_UNCOMMON;
	if (p + FT_COMMON_MIN + 4 > end)
		return FT_UNCOMMON;
	if (!FT_IS_COMMON4(p + 4))
		return ft_outside(ft_load16(p, 16)) ? FT_NO_RULE : FT_UNCOMMON;
	return FT_CONST(tuple[0].mask[FT_W_HOT]) & FT_HOT_TAG1 ? FT_NO_RULE : ft_match_one4(p + 4);
}

/*
 * Two functions that parse an uncommon frame into a key: one from linear memory, the other from a copy of the headers.
 * beside: as ft_parse_outer has it. If they were inlined, their many values would take registers from the common path.
 */
#define FT_UNCOMMON(name, ctx_type)                                                    \
	__noinline int ft_linear_##name(ctx_type *ctx, struct ft_key *k, __u32 beside) \
	{                                                                              \
		if (ctx && k)                                                          \
			ft_parse_##name(ctx, k, beside);                               \
		return 0;                                                              \
	}                                                                              \
	__noinline int ft_copied_##name(ctx_type *ctx, struct ft_key *k, __u32 beside) \
	{                                                                              \
		struct ft_copy *copy = ft_this_copy();                                 \
                                                                                       \
		if (!ctx || !k || !copy)                                               \
			return 0;                                                      \
		ft_copy_##name(copy, ctx, beside);                                     \
		ft_parse_copy(copy, k, beside & ~FT_BARE);                             \
		return 0;                                                              \
	}

/* Parses an uncommon frame into the key k. length is that of the whole frame, linear or not. */
#define FT_PARSE_UNCOMMON(name, ctx, k, start, end, beside, length)            \
	({                                                                     \
		if ((beside) & FT_BARE || ft_is_cut(start, end, length))       \
			ft_copied_##name(ctx, k, beside);                      \
		else                                                           \
			ft_linear_##name(ctx, k, beside);                      \
	})
