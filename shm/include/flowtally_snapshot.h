/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally_snapshot.h: reading many counters at once, all of one poll cycle unless the
 * writer is too fast.
 *
 * A snapshot first loads cycle_done with acquire, so all values of that cycle k are
 * visible. A block has two copies, and the snapshot takes the one of cycle k if it still
 * exists. If that is not the current one, the intent must prove afterwards that no
 * publish into it has begun. Copies of one parity are adjacent in memory, so a run of
 * blocks is copied in one piece, and each block is checked afterwards. A block that
 * changed meanwhile is copied again by itself. The labels of a snapshot say whether its
 * values are of one cycle, and otherwise how far apart they are.
 *
 * ft_snapshot_open allocates memory for the existing segments. ft_snapshot_take maps and
 * allocates once for each new segment. Apart from that, take and get allocate nothing
 * and make no system call.
 *
 * Use an ft_snapshot from one thread at a time, and close it before its reader.
 */
#ifndef FLOWTALLY_SNAPSHOT_H
#define FLOWTALLY_SNAPSHOT_H

#include "flowtally_counter.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Values of many counters. The label fields are public after ft_snapshot_take. */
typedef struct ft_snapshot {
	uint64_t cycle_min, cycle_max; /* equal: all of one poll cycle. 0: no value */
	int64_t oldest, newest;        /* sampled-at; newest - oldest is the skew */

	const ft_reader *reader;       /* private from here on */
	struct ft_snapshot_part **parts; /* one for each segment; NULL: no counter in the segment */
	int all;                       /* of all counters, including those of future segments */
} ft_snapshot;

/* Prepares snapshots of the counters of n handles, or of all (handles NULL). After a
 * success close it; after a failure there is nothing to close. */
FT_API int ft_snapshot_open(ft_snapshot *s, const ft_reader *r, const ft_handle *handles, size_t n);
FT_API int ft_snapshot_take(ft_snapshot *s);
FT_API int ft_snapshot_get(const ft_snapshot *s, ft_handle h, ft_value *out);
FT_API void ft_snapshot_close(ft_snapshot *s);

#ifndef FLOWTALLY_SHARED
/* The copy of one segment: its blocks, or its records. */
struct ft_snapshot_part {
	uint32_t kind;
	uint32_t got;                       /* number of blocks or records taken */
	uint64_t want[FT_SEG_COUNTERS / 64]; /* a bit for each block, or for each record */
	unsigned char *copies;
	struct ft_snapshot_record *records;
};

struct ft_snapshot_record {
	ft_value value;
	uint64_t epoch;
};

static inline int ft_bit(const uint64_t *bits, size_t n) { return (int)(bits[n / 64] >> n % 64 & 1); }

/* ---- which ones ---------------------------------------------------------- */

FT_API void ft_snapshot_close(ft_snapshot *s) {
	for (uint32_t n = 0; s->parts && n < FT_MOST_SEGMENTS; n++) {
		if (s->parts[n] == NULL) continue;
		free(s->parts[n]->copies);
		free(s->parts[n]->records);
		free(s->parts[n]);
	}
	free(s->parts);
	memset(s, 0, sizeof *s);
}

/* The part of a segment. The first call for a segment makes it. */
static inline int ft_snapshot_have(ft_snapshot *s, uint32_t number, struct ft_snapshot_part **out) {
	const unsigned char *segment;
	uint32_t kind;
	void *copies = NULL;
	*out = number < FT_MOST_SEGMENTS ? s->parts[number] : NULL;
	if (*out != NULL) return FT_OK;
	const int err = ft_segment(s->reader, number, &segment, &kind);
	if (err) return err;
	struct ft_snapshot_part *part = (struct ft_snapshot_part *)calloc(1, sizeof *part);
	if (part == NULL) return FT_ERR_MEMORY;
	part->kind = kind;
	if (s->all) memset(part->want, 0xff, sizeof part->want);
	if (kind == FT_KIND_RECORDS) {
		part->records = (struct ft_snapshot_record *)calloc(FT_SEG_COUNTERS, sizeof *part->records);
	} else if (posix_memalign(&copies, 64, (size_t)FT_SEG_COUNTERS / FT_BLK_LEN * FT_CPY_SIZE) == 0) {
		part->copies = (unsigned char *)copies;
	}
	if (part->records == NULL && part->copies == NULL) {
		free(part);
		return FT_ERR_MEMORY;
	}
	s->parts[number] = *out = part;
	return FT_OK;
}

FT_API int ft_snapshot_open(ft_snapshot *s, const ft_reader *r, const ft_handle *handles, size_t n) {
	struct ft_snapshot_part *part;
	int err = FT_OK;
	memset(s, 0, sizeof *s);
	s->reader = r;
	s->all = handles == NULL;
	s->parts = (struct ft_snapshot_part **)calloc(FT_MOST_SEGMENTS, sizeof(struct ft_snapshot_part *));
	if (s->parts == NULL) return FT_ERR_MEMORY;
	for (uint32_t i = 0; s->all && !err && i < ft_segments(r); i++) err = ft_snapshot_have(s, i, &part);
	for (size_t i = 0; !s->all && !err && i < n; i++) {
		err = ft_snapshot_have(s, handles[i].index / FT_SEG_COUNTERS, &part);
		if (err) break;
		const uint32_t slot = handles[i].index % FT_SEG_COUNTERS;
		const uint32_t bit = part->kind == FT_KIND_BLOCKS ? slot / FT_BLK_LEN : slot;
		part->want[bit / 64] |= (uint64_t)1 << bit % 64;
	}
	if (err) ft_snapshot_close(s);
	return err;
}

/* ---- taking -------------------------------------------------------------- */

/* Which copy of a block to take, and the word that shows afterwards that it is whole. */
struct ft_snapshot_look {
	const uint64_t *word; /* must still be seq */
	uint64_t seq;
	size_t copy; /* 0 or 1 */
};

static inline const unsigned char *ft_copy_at(const unsigned char *segment, size_t copy, size_t block) {
	return segment + FT_SEG_COPIES + (copy * (FT_SEG_COUNTERS / FT_BLK_LEN) + block) * FT_CPY_SIZE;
}

/* Chooses the copy of a block to take: between two cycles the current one, otherwise the
 * one of cycle k, or the current one if that is lost. */
static inline struct ft_snapshot_look ft_snapshot_choose(const unsigned char *segment, size_t block, uint64_t k, int between) {
	const uint64_t *intent = ft_word(segment, FT_SEG_INTENTS + block * FT_LINE_SIZE);
	struct ft_snapshot_look look;
	look.word = ft_word(segment, FT_SEG_SEQS + block * FT_LINE_SIZE);
	look.seq = ft_acquire(look.word); /* barrier read-acquire */
	look.copy = look.seq & 1;
	/* The other copy does not change until the next publish begins, which the intent
	 * announces first. Then it is lost, and stays lost if the writer is killed there. */
	if (!between && ft_u64(ft_copy_at(segment, look.copy, block), FT_CPY_CYCLE) > k &&
	    ft_u64(ft_copy_at(segment, !look.copy, block), FT_CPY_CYCLE) == k && ft_relaxed(intent) == look.seq) {
		look.word = intent;
		look.copy = !look.copy;
	}
	return look;
}

static inline int ft_snapshot_block(const unsigned char *segment, size_t block, uint64_t k, unsigned char *to) {
	for (int i = 0; i < FT_ATTEMPTS; i++) {
		const struct ft_snapshot_look look = ft_snapshot_choose(segment, block, k, 0);
		memcpy(to, ft_copy_at(segment, look.copy, block), FT_CPY_SIZE);
		ft_fence(); /* barrier read-fence */
		if (ft_relaxed(look.word) == look.seq) return FT_OK;
	}
	return FT_ERR_BUSY;
}

/* Copies the wanted blocks below high, each run of adjacent copies in one piece. between:
 * no cycle after k has begun, so every current copy is of k or before. */
static inline int ft_snapshot_blocks(const unsigned char *segment, uint64_t want, size_t high, uint64_t k, int between,
				     unsigned char *to) {
	struct ft_snapshot_look looks[FT_SEG_COUNTERS / FT_BLK_LEN];
	for (size_t first = 0; first < high;) {
		if ((want >> first & 1) == 0) {
			first++;
			continue;
		}
		size_t end = first;
		do looks[end] = ft_snapshot_choose(segment, end, k, between);
		while (looks[end].copy == looks[first].copy && ++end < high && (want >> end & 1));
		memcpy(to + first * FT_CPY_SIZE, ft_copy_at(segment, looks[first].copy, first), (end - first) * FT_CPY_SIZE);
		ft_fence(); /* barrier read-fence */
		for (; first < end; first++) {
			unsigned char *copy = to + first * FT_CPY_SIZE;
			/* If a cycle has begun since and published this copy, the other one may be of k. */
			const int later = between && ft_u64(copy, FT_CPY_CYCLE) > k;
			if (!later && ft_relaxed(looks[first].word) == looks[first].seq) continue;
			const int err = ft_snapshot_block(segment, first, k, copy);
			if (err) return err;
		}
	}
	return FT_OK;
}

/* Reads a record, and the cycle in which it was published. */
static inline int ft_snapshot_copy_record(const ft_reader *r, const unsigned char *p, struct ft_snapshot_record *to, uint64_t *cycle) {
	for (int i = 0; i < FT_ATTEMPTS; i++) {
		const uint64_t s = ft_acquire(ft_word(p, FT_REC_SEQ)); /* barrier read-acquire */
		to->value = ft_triple(ft_word(p, FT_REC_SLOTS + (s & 1) * FT_VAL_SIZE));
		const uint32_t low = ft_u32(p, FT_REC_CYCLES + (s & 1) * 4);
		ft_fence(); /* barrier read-fence */
		if (ft_relaxed(ft_word(p, FT_REC_SEQ)) != s) continue;
		to->epoch = s >> FT_EPOCH_SHIFT;
		/* The record has only the low half of its cycle, which is the latest cycle up to
		 * cycle_begun with that half. cycle_begun must be loaded after the record: then it
		 * is at least the record's cycle. */
		const uint64_t begun = ft_u64(r->base, FT_HDR_CYCLE_BEGUN);
		*cycle = begun - (uint32_t)((uint32_t)begun - low);
		return FT_OK;
	}
	return FT_ERR_BUSY;
}

static inline void ft_snapshot_label(ft_snapshot *s, uint64_t cycle, int64_t oldest, int64_t newest) {
	if (newest == 0) return; /* holds no sampled value */
	if (s->newest == 0 || cycle < s->cycle_min) s->cycle_min = cycle;
	if (s->newest == 0 || cycle > s->cycle_max) s->cycle_max = cycle;
	if (s->newest == 0 || oldest < s->oldest) s->oldest = oldest;
	if (s->newest == 0 || newest > s->newest) s->newest = newest;
}

/* Takes the wanted blocks or records of one segment. */
static inline int ft_snapshot_segment(ft_snapshot *s, uint32_t number, uint64_t k, int between) {
	const ft_reader *r = s->reader;
	const unsigned char *segment;
	struct ft_snapshot_part *part;
	uint32_t kind;
	int err = ft_segment(r, number, &segment, &kind);
	if (!err) err = ft_snapshot_have(s, number, &part);
	if (err) return err;
	const uint32_t high = ft_high(r, number);
	if (kind == FT_KIND_BLOCKS) {
		part->got = (high + FT_BLK_LEN - 1) / FT_BLK_LEN;
		err = ft_snapshot_blocks(segment, part->want[0], part->got, k, between, part->copies);
		for (uint32_t i = 0; !err && i < part->got; i++) {
			const unsigned char *copy = part->copies + (size_t)i * FT_CPY_SIZE;
			if (ft_bit(part->want, i))
				ft_snapshot_label(s, ft_u64(copy, FT_CPY_CYCLE), ft_i64(copy, FT_CPY_OLDEST), ft_i64(copy, FT_CPY_NEWEST));
		}
		return err;
	}
	part->got = high;
	for (uint32_t i = 0; !err && i < high; i++) {
		uint64_t cycle = 0;
		if (!ft_bit(part->want, i)) continue;
		struct ft_snapshot_record *to = &part->records[i];
		err = ft_snapshot_copy_record(r, segment + FT_SEG_RECORDS + (size_t)i * FT_REC_SIZE, to, &cycle);
		if (!err) ft_snapshot_label(s, cycle, to->value.sampled_at, to->value.sampled_at);
	}
	return err;
}

FT_API int ft_snapshot_take(ft_snapshot *s) {
	const ft_reader *r = s->reader;
	const uint64_t k = ft_acquire(ft_word(r->base, FT_HDR_CYCLE_DONE)); /* barrier cycle-acquire */
	const int between = ft_u64(r->base, FT_HDR_CYCLE_BEGUN) <= k;
	int err = FT_OK;
	s->cycle_min = s->cycle_max = 0;
	s->oldest = s->newest = 0;
	for (uint32_t n = 0; n < ft_segments(r) && !err; n++)
		if (s->all || s->parts[n] != NULL) err = ft_snapshot_segment(s, n, k, between);
	const int still = ft_still(r);
	return still ? still : err;
}

/* Returns the value of h in the snapshot; absent (sampled_at 0) if the counter was added,
 * or first published, after it. FT_ERR_GONE: the counter was removed, before the snapshot
 * or since. FT_ERR_NO_COUNTER: it is not among the handles given to ft_snapshot_open. */
FT_API int ft_snapshot_get(const ft_snapshot *s, ft_handle h, ft_value *out) {
	const ft_reader *r = s->reader;
	const unsigned char *e;
	memset(out, 0, sizeof *out);
	const int missing = ft_entry_at(r, h.index, &e);
	if (missing) return missing;
	/* Check for LIVE of our generation before and after loading born: then born is h's,
	 * because a generation never returns. (barrier entry-acquire) */
	if (ft_acquire(ft_word(e, FT_ENT_IDENTITY)) != ft_live_identity(h.generation)) return FT_ERR_GONE;
	const uint64_t born = ft_u64(e, FT_ENT_BORN);
	ft_fence(); /* barrier entry-fence */
	if (ft_relaxed(ft_word(e, FT_ENT_IDENTITY)) != ft_live_identity(h.generation)) return FT_ERR_GONE;

	const struct ft_snapshot_part *part = s->parts[h.index / FT_SEG_COUNTERS];
	const size_t slot = h.index % FT_SEG_COUNTERS;
	ft_value v;
	uint64_t epoch;
	if (part == NULL) return s->all ? FT_OK : FT_ERR_NO_COUNTER;
	if (part->kind == FT_KIND_BLOCKS) {
		const size_t block = slot / FT_BLK_LEN, row = slot % FT_BLK_LEN;
		const unsigned char *copy = part->copies + block * FT_CPY_SIZE;
		if (!ft_bit(part->want, block)) return FT_ERR_NO_COUNTER;
		if (block >= part->got || (ft_u64(copy, FT_CPY_LIVE) >> row & 1) == 0) return FT_OK;
		epoch = ft_u64(copy, FT_CPY_EPOCH);
		v = ft_triple(ft_word(copy, FT_CPY_VALUES + row * FT_VAL_SIZE));
	} else {
		if (!ft_bit(part->want, slot)) return FT_ERR_NO_COUNTER;
		if (slot >= part->got) return FT_OK;
		epoch = part->records[slot].epoch;
		v = part->records[slot].value;
	}
	if (epoch >= FT_EPOCH_MAX) return FT_ERR_WORN;
	/* Otherwise the copy is older than h: the value is of the slot's last counter. */
	if (born <= epoch) *out = v;
	return FT_OK;
}
#endif /* FLOWTALLY_SHARED */

#ifdef __cplusplus
}
#endif

#endif /* FLOWTALLY_SNAPSHOT_H */
