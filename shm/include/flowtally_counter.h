/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally_counter.h: reading one counter in nanoseconds.
 *
 * A value is a consistent triple (packets, bytes, sampled-at) whatever the writer
 * does, kill -9 included. ft_counter_open resolves a handle once. ft_load is for hot
 * paths: it makes no system call and allocates nothing.
 *
 * The ft_counter keeps the value of its last read, and the sequence word of that read. If
 * the sequence word is unchanged, the value is current. Otherwise the plain form reads
 * the three words anew, at most FT_ATTEMPTS times.
 *
 * FT_ERR_GONE: the counter was removed. FT_ERR_STALE: the writer gave the file up. It
 * marks the file, then moves each sequence word on, so that the plain form finds the
 * mark. That keeps no sequence word then, and every later ft_load finds the mark again.
 * FT_ERR_BUSY: try again.
 *
 * An ft_counter belongs to one thread at a time, and may be copied.
 */
#ifndef FLOWTALLY_COUNTER_H
#define FLOWTALLY_COUNTER_H

#include "flowtally_catalogue.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ft_value {
	uint64_t packets, bytes; /* of kind "completion": completions, and errors */
	int64_t sampled_at; /* ns of CLOCK_MONOTONIC; 0: never sampled */
} ft_value;

/* One counter, resolved. Fields are private. */
typedef struct ft_counter {
	const uint64_t *seq;
	uint64_t last;          /* the sequence word of the last read; 0: take the plain form */
	ft_value value;         /* what that read returned */
	const uint64_t *values; /* the value in copy (slot) 0 */
	size_t copy_words;      /* from there to the value in copy (slot) 1 */
	const uint64_t *identity;
	const uint64_t *replaced;
	ft_handle handle;
} ft_counter;

FT_API int ft_counter_open(const ft_reader *r, ft_handle h, ft_counter *out);
FT_API int ft_load(ft_counter *c, ft_value *out);

#ifndef FLOWTALLY_SHARED
/* Loads the three words of a value, one by one: they may belong to two publishes. */
static inline ft_value ft_triple(const uint64_t *p) {
	ft_value v;
	v.packets = ft_relaxed(p + FT_VAL_PACKETS / 8);
	v.bytes = ft_relaxed(p + FT_VAL_BYTES / 8);
	v.sampled_at = (int64_t)ft_relaxed(p + FT_VAL_SAMPLED_AT / 8);
	return v;
}

/* The plain form. It checks everything, and notes what the quick form of ft_load needs. */
__attribute__((noinline, unused)) static int ft_load_plain(ft_counter *c, ft_value *out) {
	c->last = 0;
	for (int i = 0; i < FT_ATTEMPTS; i++) {
		const uint64_t s = ft_acquire(c->seq); /* barrier read-acquire */
		/* The writer gives the file up by storing this mark before it moves seq. We load
		 * them in the other order: if we saw a moved seq, we see the mark. */
		const int stale = ft_stale(c->replaced);
		if (stale) return stale;
		/* A removal stores RETIRED before the publish that raises the epoch in seq. We
		 * have loaded seq with acquire. So LIVE here, of our generation, proves that the
		 * copy under s does not belong to the slot's next counter.
		 * (barrier identity-acquire, idle: read-fence orders this load before the second
		 * one of seq.) */
		if (ft_acquire(c->identity) != ft_live_identity(c->handle.generation)) return FT_ERR_GONE;
		const ft_value v = ft_triple(c->values + (s & 1) * c->copy_words);
		ft_fence(); /* barrier read-fence */
		if (ft_relaxed(c->seq) != s) continue;
		c->value = v;
		/* A saturated epoch no longer tells of removals, so every read must take the
		 * plain form. No published word is 0. */
		c->last = s >> FT_EPOCH_SHIFT == FT_EPOCH_MAX ? 0 : s;
		*out = v;
		return FT_OK;
	}
	return FT_ERR_BUSY;
}

FT_API int ft_counter_open(const ft_reader *r, ft_handle h, ft_counter *out) {
	const unsigned char *segment;
	uint32_t kind;
	ft_value first;
	const int err = ft_segment(r, h.index / FT_SEG_COUNTERS, &segment, &kind);
	if (err) return err;
	const size_t slot = h.index % FT_SEG_COUNTERS;
	if (kind == FT_KIND_BLOCKS) {
		const size_t block = slot / FT_BLK_LEN, row = slot % FT_BLK_LEN;
		out->seq = ft_word(segment, FT_SEG_SEQS + block * FT_LINE_SIZE);
		out->values = ft_word(segment, FT_SEG_COPIES + block * FT_CPY_SIZE + FT_CPY_VALUES + row * FT_VAL_SIZE);
		out->copy_words = (size_t)FT_SEG_COUNTERS / FT_BLK_LEN * FT_CPY_SIZE / 8;
	} else {
		out->seq = ft_word(segment, FT_SEG_RECORDS + slot * FT_REC_SIZE + FT_REC_SEQ);
		out->values = ft_word(segment, FT_SEG_RECORDS + slot * FT_REC_SIZE + FT_REC_SLOTS);
		out->copy_words = FT_VAL_SIZE / 8;
	}
	out->last = 0;
	out->identity = ft_word(segment, slot * FT_ENT_SIZE + FT_ENT_IDENTITY);
	out->replaced = ft_word(r->base, FT_HDR_REPLACED);
	out->handle = h;
	return ft_load_plain(out, &first);
}

FT_API int ft_load(ft_counter *c, ft_value *out) {
	/* The quick form. c->value was read whole under c->last. If that still is the sequence
	 * word, the writer has published nothing since, and has removed no counter of the block.
	 * All other words here belong to this thread, so the order needs no barrier. The acquire
	 * is for callers: what they load next is not older than the value. */
	if (__builtin_expect(ft_acquire(c->seq) == c->last, 1)) {
		out->packets = c->value.packets;
		out->bytes = c->value.bytes;
		out->sampled_at = c->value.sampled_at;
		return FT_OK;
	}
	return ft_load_plain(c, out);
}
#endif /* FLOWTALLY_SHARED */

#ifdef __cplusplus
}
#endif

#endif /* FLOWTALLY_COUNTER_H */
