/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally_snapshot.h: reading many counters at once, of one poll cycle where the
 * writer leaves the time.
 *
 * ft_snapshot_open allocates all that is needed; take and get allocate nothing and
 * make no system call. cycle_done is loaded with acquire first: all of that cycle k
 * is there. A block keeps two copies, and the one of k is taken while it is there:
 * of the other copy, the intent tells afterwards that nobody began to write into it.
 * What each snapshot turned out to be is in its labels: one cycle, or how far apart.
 *
 * An ft_snapshot belongs to one thread at a time, and borrows from its reader.
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
	uint32_t *want_blocks, *want_records; /* sorted */
	uint32_t n_blocks, n_records;  /* wanted */
	uint32_t got_blocks, got_records;
	unsigned char *copies;         /* n_blocks copies */
	struct ft_snapshot_record *values;
} ft_snapshot;

struct ft_snapshot_record {
	ft_value value;
	uint64_t epoch;
};

/* Of the counters of n handles, or of all (handles NULL). On success it is to be
 * closed; on failure there is nothing to close. */
FT_API int ft_snapshot_open(ft_snapshot *s, const ft_reader *r, const ft_handle *handles, size_t n);
FT_API int ft_snapshot_take(ft_snapshot *s);
FT_API int ft_snapshot_get(const ft_snapshot *s, ft_handle h, ft_value *out);
FT_API void ft_snapshot_close(ft_snapshot *s);

#ifndef FLOWTALLY_SHARED
/* ---- which ones ---------------------------------------------------------- */

static inline int ft_compare_u32(const void *a, const void *b) {
	uint32_t x, y;
	memcpy(&x, a, sizeof x);
	memcpy(&y, b, sizeof y);
	return (x > y) - (x < y);
}

/* Sorts list and drops what stands in it twice; returns what is left. */
static inline uint32_t ft_unique(uint32_t *list, uint32_t n) {
	uint32_t kept = 0;
	if (n == 0) return 0;
	qsort(list, n, sizeof *list, ft_compare_u32);
	for (uint32_t i = 0; i < n; i++)
		if (i == 0 || list[i] != list[kept - 1]) list[kept++] = list[i];
	return kept;
}

/* Where number stands in the first n of a sorted list, or n. */
static inline uint32_t ft_find(const uint32_t *list, uint32_t n, uint32_t number) {
	uint32_t low = 0, high = n;
	while (low < high) {
		const uint32_t middle = low + (high - low) / 2;
		if (list[middle] < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low < n && list[low] == number ? low : n;
}

FT_API void ft_snapshot_close(ft_snapshot *s) {
	free(s->want_blocks);
	free(s->want_records);
	free(s->copies);
	free(s->values);
	memset(s, 0, sizeof *s);
}

FT_API int ft_snapshot_open(ft_snapshot *s, const ft_reader *r, const ft_handle *handles, size_t n) {
	memset(s, 0, sizeof *s);
	const uint32_t blocks = r->counters / FT_BLK_LEN, records = r->record_count;
	/* As many as could be asked for, and never nothing: malloc(0) may answer NULL. */
	const size_t most_blocks = handles ? n : blocks, most_records = handles ? n : records;
	if (most_blocks > UINT32_MAX) return FT_ERR_ARGUMENT;
	s->reader = r;
	s->want_blocks = (uint32_t *)calloc(most_blocks + 1, sizeof *s->want_blocks);
	s->want_records = (uint32_t *)calloc(most_records + 1, sizeof *s->want_records);
	if (s->want_blocks == NULL || s->want_records == NULL) {
		ft_snapshot_close(s);
		return FT_ERR_MEMORY;
	}
	if (handles == NULL) {
		for (; s->n_blocks < blocks; s->n_blocks++) s->want_blocks[s->n_blocks] = s->n_blocks;
		for (; s->n_records < records; s->n_records++) s->want_records[s->n_records] = s->n_records;
	}
	for (size_t i = 0; handles && i < n; i++) {
		const uint32_t index = handles[i].index;
		if (index >= ft_capacity(r)) {
			ft_snapshot_close(s);
			return FT_ERR_NO_COUNTER;
		}
		if (index < r->counters)
			s->want_blocks[s->n_blocks++] = index / FT_BLK_LEN;
		else
			s->want_records[s->n_records++] = index - r->counters;
	}
	s->n_blocks = ft_unique(s->want_blocks, s->n_blocks);
	s->n_records = ft_unique(s->want_records, s->n_records);
	void *copies = NULL;
	if (posix_memalign(&copies, 64, (size_t)s->n_blocks * FT_CPY_SIZE + 64) != 0) copies = NULL;
	s->copies = (unsigned char *)copies;
	s->values = (struct ft_snapshot_record *)calloc((size_t)s->n_records + 1, sizeof *s->values);
	if (s->copies == NULL || s->values == NULL) {
		ft_snapshot_close(s);
		return FT_ERR_MEMORY;
	}
	return FT_OK;
}

/* ---- taking -------------------------------------------------------------- */

/* Copies the copy of a block that belongs to cycle k, or the current one. */
static inline int ft_snapshot_block(const unsigned char *block, uint64_t k, unsigned char *to) {
	const uint64_t *seq = ft_word(block, FT_BLK_SEQ), *intent = ft_word(block, FT_BLK_INTENT);
	for (int i = 0; i < FT_ATTEMPTS; i++) {
		const uint64_t s = ft_acquire(seq);
		const unsigned char *current = block + FT_BLK_COPIES + (s & 1) * FT_CPY_SIZE;
		const unsigned char *other = block + FT_BLK_COPIES + (~s & 1) * FT_CPY_SIZE;
		if (ft_u64(current, FT_CPY_CYCLE) > k && ft_u64(other, FT_CPY_CYCLE) == k) {
			memcpy(to, other, FT_CPY_SIZE);
			ft_fence();
			/* No publish was begun since s: nobody wrote into the other copy. */
			if (ft_relaxed(intent) == s) return FT_OK;
			/* One was: the other copy is lost for good. The current one is not. */
		}
		memcpy(to, current, FT_CPY_SIZE);
		ft_fence();
		if (ft_relaxed(seq) == s) return FT_OK;
	}
	return FT_ERR_BUSY;
}

/* Reads a record, and the cycle in which it was published. */
static inline int ft_snapshot_record_take(const ft_reader *r, uint32_t number, struct ft_snapshot_record *to, uint64_t *cycle) {
	const unsigned char *p = r->records + (size_t)number * FT_REC_SIZE;
	for (int i = 0; i < FT_ATTEMPTS; i++) {
		const uint64_t s = ft_acquire(ft_word(p, FT_REC_SEQ));
		const unsigned char *slot = p + FT_REC_SLOTS + (s & 1) * FT_VAL_SIZE;
		to->value = ft_triple(ft_word(slot, 0));
		const uint32_t low = ft_u32(p, FT_REC_CYCLES + (s & 1) * 4);
		ft_fence();
		if (ft_relaxed(ft_word(p, FT_REC_SEQ)) != s) continue;
		to->epoch = s >> FT_EPOCH_SHIFT;
		/* The largest number up to cycle_begun with that low half. Loaded after
		 * the record, so not older than the cycle in which it was published. */
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

FT_API int ft_snapshot_take(ft_snapshot *s) {
	const ft_reader *r = s->reader;
	const uint64_t k = ft_acquire(ft_word(r->base, FT_HDR_CYCLE_DONE));
	const uint32_t blocks_high = ft_blocks_high(r), records_high = ft_records_high(r);
	s->cycle_min = s->cycle_max = 0;
	s->oldest = s->newest = 0;
	/* Sorted: what comes after one that was never used was not either. */
	for (s->got_blocks = 0; s->got_blocks < s->n_blocks; s->got_blocks++) {
		const uint32_t number = s->want_blocks[s->got_blocks];
		if (number >= blocks_high) break;
		unsigned char *to = s->copies + (size_t)s->got_blocks * FT_CPY_SIZE;
		const int err = ft_snapshot_block(r->blocks + (size_t)number * FT_BLK_SIZE, k, to);
		if (err) return err;
		ft_snapshot_label(s, ft_u64(to, FT_CPY_CYCLE), ft_i64(to, FT_CPY_OLDEST), ft_i64(to, FT_CPY_NEWEST));
	}
	for (s->got_records = 0; s->got_records < s->n_records; s->got_records++) {
		const uint32_t number = s->want_records[s->got_records];
		if (number >= records_high) break;
		struct ft_snapshot_record *to = &s->values[s->got_records];
		uint64_t cycle = 0;
		const int err = ft_snapshot_record_take(r, number, to, &cycle);
		if (err) return err;
		ft_snapshot_label(s, cycle, to->value.sampled_at, to->value.sampled_at);
	}
	return ft_whole(r);
}

/* The value that the snapshot holds for h; absent (sampled_at 0) when the
 * counter was added, or first published, only later. FT_ERR_GONE: the counter
 * was removed, before the snapshot or since. FT_ERR_NO_COUNTER: it is not among
 * the handles that the snapshot was opened for. */
FT_API int ft_snapshot_get(const ft_snapshot *s, ft_handle h, ft_value *out) {
	const ft_reader *r = s->reader;
	memset(out, 0, sizeof *out);
	if (h.index >= ft_capacity(r)) return FT_ERR_NO_COUNTER;
	const unsigned char *e = ft_entry_at(r, h.index);
	/* LIVE under h's generation, which never comes back: born is of h. */
	if (ft_acquire(ft_word(e, FT_ENT_IDENTITY)) != ft_live_identity(h.generation)) return FT_ERR_GONE;
	const uint64_t born = ft_u64(e, FT_ENT_BORN);
	ft_fence();
	if (ft_relaxed(ft_word(e, FT_ENT_IDENTITY)) != ft_live_identity(h.generation)) return FT_ERR_GONE;

	ft_value v;
	uint64_t epoch;
	if (h.index < r->counters) {
		const uint32_t at = ft_find(s->want_blocks, s->n_blocks, h.index / FT_BLK_LEN);
		if (at == s->n_blocks) return FT_ERR_NO_COUNTER;
		if (at >= s->got_blocks) return FT_OK;
		const unsigned char *copy = s->copies + (size_t)at * FT_CPY_SIZE;
		const size_t row = h.index % FT_BLK_LEN;
		if ((ft_u64(copy, FT_CPY_LIVE) >> row & 1) == 0) return FT_OK;
		epoch = ft_u64(copy, FT_CPY_EPOCH);
		v = ft_triple(ft_word(copy, FT_CPY_VALUES + row * FT_VAL_SIZE));
	} else {
		const uint32_t at = ft_find(s->want_records, s->n_records, h.index - r->counters);
		if (at == s->n_records) return FT_ERR_NO_COUNTER;
		if (at >= s->got_records) return FT_OK;
		epoch = s->values[at].epoch;
		v = s->values[at].value;
	}
	if (epoch >= FT_EPOCH_MAX) return FT_ERR_WORN;
	/* Else the slot was freed, and given to h, since the copy was made. */
	if (born <= epoch) *out = v;
	return FT_OK;
}
#endif /* FLOWTALLY_SHARED */

#ifdef __cplusplus
}
#endif

#endif /* FLOWTALLY_SNAPSHOT_H */
