/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally_history.h: following the published values, record by record.
 *
 * The history is a ring, and the writer waits for no reader. The tail is loaded with
 * acquire, so all records up to it are visible. The writer raises the intent, with a store
 * fence, before it overwrites a record. So after copying a record, and a load fence, the
 * intent tells whether the writer may have begun to overwrite it. The cursor counts
 * exactly what it has missed.
 *
 * Use an ft_cursor from one thread at a time, and close its reader last. No system
 * call, no allocation.
 */
#ifndef FLOWTALLY_HISTORY_H
#define FLOWTALLY_HISTORY_H

#include "flowtally_counter.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A record of the history. */
typedef struct ft_record {
	uint64_t position;
	ft_handle handle;
	ft_value value;
	uint64_t cycle;
} ft_record;

typedef struct ft_cursor {
	const ft_reader *reader;
	uint64_t seen; /* position of the last record read or lost */
	uint64_t lost; /* records overwritten before they were read */
} ft_cursor;

/* Starts with the next record to be written, or with the oldest one in the ring. */
FT_API int ft_cursor_open(ft_cursor *c, const ft_reader *r, int oldest);
/* The next record, or FT_EMPTY. c->lost is the number of records missed so far. In a file
 * that was given up, the last records can still be read; FT_ERR_STALE follows them in place
 * of FT_EMPTY. */
FT_API int ft_cursor_next(ft_cursor *c, ft_record *out);

#ifndef FLOWTALLY_SHARED
FT_API int ft_cursor_open(ft_cursor *c, const ft_reader *r, int oldest) {
	c->reader = r;
	c->lost = 0;
	c->seen = ft_acquire(ft_word(r->base, FT_HDR_HISTORY_TAIL));
	if (oldest) {
		const uint64_t intent = ft_acquire(ft_word(r->base, FT_HDR_HISTORY_INTENT));
		c->seen = intent > r->history_len ? intent - r->history_len : 0;
	}
	return ft_still(r);
}

/* Counts the records that were overwritten before they were read, and skips them. */
static inline int ft_cursor_lapped(ft_cursor *c, uint64_t intent) {
	const uint64_t length = c->reader->history_len;
	if (intent <= length || intent - length <= c->seen) return 0;
	c->lost += intent - length - c->seen;
	c->seen = intent - length;
	return 1;
}

FT_API int ft_cursor_next(ft_cursor *c, ft_record *out) {
	const ft_reader *r = c->reader;
	const uint64_t *tail = ft_word(r->base, FT_HDR_HISTORY_TAIL), *intent = ft_word(r->base, FT_HDR_HISTORY_INTENT);
	if (r->history_len == 0) {
		const int still = ft_still(r);
		return still ? still : FT_EMPTY;
	}
	for (int attempts = 0; attempts < FT_ATTEMPTS;) {
		const uint64_t last = ft_acquire(tail); /* barrier tail-acquire */
		if (c->seen == last) {
			const int still = ft_still(r);
			return still ? still : FT_EMPTY;
		}
		const uint64_t begun = ft_acquire(intent); /* barrier intent-acquire */
		/* The tail never falls, and is not ahead of an intent loaded after it. */
		if (last < c->seen || begun < last) return ft_whole(r) ? FT_ERR_TRUNCATED : FT_ERR_CORRUPT;
		if (ft_cursor_lapped(c, begun)) {
			attempts++;
			continue;
		}
		const uint64_t number = c->seen + 1;
		const unsigned char *p = r->base + FT_HEADER_SIZE + (size_t)((number - 1) & (r->history_len - 1)) * FT_HIS_SIZE;
		const uint64_t position = ft_u64(p, FT_HIS_POSITION);
		const uint32_t kind = ft_u32(p, FT_HIS_KIND);
		out->position = number;
		out->handle.index = ft_u32(p, FT_HIS_INDEX);
		out->handle.generation = ft_u32(p, FT_HIS_GENERATION);
		out->value.packets = ft_u64(p, FT_HIS_PACKETS);
		out->value.bytes = ft_u64(p, FT_HIS_BYTES);
		out->value.sampled_at = ft_i64(p, FT_HIS_TIME);
		out->cycle = ft_u64(p, FT_HIS_CYCLE);
		ft_fence(); /* barrier history-read-fence */
		/* With acquire, so that the next load of the tail is not older than this intent, and
		 * the tail not behind c->seen (barrier intent-acquire). */
		if (ft_cursor_lapped(c, ft_acquire(intent))) {
			attempts++;
			continue;
		}
		c->seen = number;
		if (position != number) return FT_ERR_CORRUPT; /* skip it: the next call continues */
		if (kind == 0) return FT_OK;
		/* A record of a later version: skip it. That is no attempt, and ends at the tail. */
	}
	return FT_ERR_BUSY;
}
#endif /* FLOWTALLY_SHARED */

#ifdef __cplusplus
}
#endif

#endif /* FLOWTALLY_HISTORY_H */
