/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally_reader.h: opening a mirror, and mapping its segments as they come.
 *
 * ft_open maps the header and the history. A segment is mapped when a function first
 * meets an index in it, after fstat(2) has shown that the file covers it. So a reader
 * needs no call when the mirror grows. A mapped segment stays where it is until
 * ft_close. If threads meet a segment at one time, each maps it, one stores the address
 * by compare-and-swap (release), and the others unmap theirs. No word of the file leads a
 * reader outside its mappings, because every offset is a constant or a product of
 * bounded numbers.
 *
 * ft_open, ft_attach and ft_close: one thread, while no other uses r. They make system
 * calls and allocate. All other functions that read a mirror may use r from any
 * number of threads. Counters, cursors and snapshots borrow from r: stop using them, or
 * close them, before ft_close.
 */
#ifndef FLOWTALLY_READER_H
#define FLOWTALLY_READER_H

#include "flowtally_guard.h"
#include "flowtally_header.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A mapped mirror. ft_open or ft_attach fills it; fields are private. */
typedef struct ft_reader {
	const unsigned char *base; /* header and history */
	size_t size;               /* bytes at base; of all the memory when attached */
	uint64_t start;            /* offset of segment 0 */
	uint64_t file;             /* names the file */
	uintptr_t *segments;       /* address + kind of each segment; 0: not met yet */
	uint32_t history_len;
	int fd;                    /* -1 when attached */
	char *path;                /* NULL when attached */
	char *instance;            /* NULL unless opened by name */
	ft_options options;
	uint64_t turn;             /* from 1; ft_follow raises it when it opens another file */
	struct ft_guarded *guard;  /* NULL without ft_guard_sigbus */
} ft_reader;

/* Opens the mirror at path and checks it. options may be NULL. */
FT_API int ft_open(ft_reader *r, const char *path, const ft_options *options);
/* ft_open for size bytes that are in memory already, 8-byte aligned. ft_close frees the
 * reader's allocations, and leaves the memory to the caller. */
FT_API int ft_attach(ft_reader *r, const void *base, size_t size);
FT_API void ft_close(ft_reader *r);

#ifndef FLOWTALLY_SHARED
/* FT_ERR_TRUNCATED when ft_guard_sigbus had to mend a page of r. */
static inline int ft_whole(const ft_reader *r) { return ft_guard_whole(r->guard); }

/* FT_ERR_STALE when the writer gave the file up. */
static inline int ft_stale(const uint64_t *replaced) { return ft_relaxed(replaced) ? FT_ERR_STALE : FT_OK; }

/* The last check of a function. The fence orders the loads before it, so the words
 * were read before the mark of a file that was given up, or are refused. */
static inline int ft_still(const ft_reader *r) {
	ft_fence();
	const int err = ft_stale(ft_word(r->base, FT_HDR_REPLACED));
	return ft_whole(r) ? FT_ERR_TRUNCATED : err;
}

/* ---- segments ------------------------------------------------------------ */

/* How many segments the writer declares. Their descriptors are there, and the file is
 * as long (barrier segments-acquire). */
static inline uint32_t ft_segments(const ft_reader *r) {
	const uint32_t n = __atomic_load_n((const uint32_t *)(const void *)(r->base + FT_HDR_SEGMENTS), __ATOMIC_ACQUIRE);
	return n < FT_MOST_SEGMENTS ? n : (uint32_t)FT_MOST_SEGMENTS;
}

/* Maps a segment, and guards it as the header is guarded. */
static inline int ft_segment_open(const ft_reader *r, uint64_t offset, const unsigned char **out, struct ft_guarded **guard) {
	struct stat st;
	if (r->fd < 0) {
		if (offset > r->size || r->size - offset < FT_SEG_SIZE) return FT_ERR_TRUNCATED;
		*out = r->base + (size_t)offset;
		return FT_OK;
	}
	if (fstat(r->fd, &st) != 0) return FT_ERR_SYSTEM;
	if ((uint64_t)st.st_size < offset + FT_SEG_SIZE) return FT_ERR_TRUNCATED;
	int err = ft_map(r->fd, offset, FT_SEG_SIZE, out);
	if (!err && r->guard != NULL) {
		err = ft_guard_take(*out, FT_SEG_SIZE, r->guard, guard);
		if (err) ft_unmap(*out, FT_SEG_SIZE);
	}
	return err;
}

/* The first meeting with a segment. */
__attribute__((noinline, unused)) static int ft_segment_meet(const ft_reader *r, uint32_t number, uintptr_t *out) {
	const unsigned char *p = NULL;
	struct ft_guarded *guard = NULL;
	if (number >= ft_segments(r)) return FT_ERR_NO_COUNTER;
	/* Loaded once, and kept with the address: a kind that changes afterwards is not seen. */
	const uint32_t kind = ft_u32(r->base, FT_HDR_DESCRIPTORS + (size_t)number * FT_DSC_SIZE + FT_DSC_KIND);
	if (kind != FT_KIND_BLOCKS && kind != FT_KIND_RECORDS) return ft_whole(r) ? FT_ERR_TRUNCATED : FT_ERR_CORRUPT;
	const int err = ft_segment_open(r, r->start + (uint64_t)number * FT_SEG_SIZE, &p, &guard);
	if (err) return err;
	uintptr_t found = 0;
	*out = (uintptr_t)p + kind;
	if (__atomic_compare_exchange_n(&r->segments[number], &found, *out, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return FT_OK;
	*out = found; /* another thread was first */
	ft_guard_release(guard);
	if (r->fd >= 0) ft_unmap(p, FT_SEG_SIZE);
	return FT_OK;
}

/* Segment number and its kind. FT_ERR_NO_COUNTER: there is no such segment. */
static inline int ft_segment(const ft_reader *r, uint32_t number, const unsigned char **segment, uint32_t *kind) {
	if (number >= FT_MOST_SEGMENTS) return FT_ERR_NO_COUNTER;
	uintptr_t at = __atomic_load_n(&r->segments[number], __ATOMIC_ACQUIRE);
	const int err = at ? FT_OK : ft_segment_meet(r, number, &at);
	if (err) return err;
	*kind = (uint32_t)(at & 3); /* addresses are multiples of 8 */
	*segment = (const unsigned char *)(at & ~(uintptr_t)3);
	return FT_OK;
}

/* Slots of the segment from there on were never used. */
static inline uint32_t ft_high(const ft_reader *r, uint32_t number) {
	const uint32_t high = ft_u32(r->base, FT_HDR_DESCRIPTORS + (size_t)number * FT_DSC_SIZE + FT_DSC_HIGH);
	return high < FT_SEG_COUNTERS ? high : (uint32_t)FT_SEG_COUNTERS;
}

/* ---- opening ------------------------------------------------------------- */

static inline void ft_none(ft_reader *r) {
	memset(r, 0, sizeof *r);
	r->fd = -1;
}

/* Takes the numbers of a checked header. */
static inline int ft_begin(ft_reader *r, const struct ft_header *h) {
	r->start = h->length;
	r->file = h->file;
	r->history_len = h->history;
	r->turn = 1;
	r->segments = (uintptr_t *)calloc(FT_MOST_SEGMENTS, sizeof *r->segments);
	return r->segments ? FT_OK : FT_ERR_MEMORY;
}

FT_API int ft_attach(ft_reader *r, const void *base, size_t size) {
	struct ft_header h;
	ft_none(r);
	if (base == NULL || (uintptr_t)base % 8 != 0) return FT_ERR_ARGUMENT;
	if (size < FT_HEADER_SIZE) return FT_ERR_TRUNCATED;
	ft_header_copy(&h, (const unsigned char *)base);
	int err = ft_header_check(&h);
	if (!err && size < h.length) err = FT_ERR_TRUNCATED;
	if (!err) err = ft_begin(r, &h);
	if (err) return err;
	r->base = (const unsigned char *)base;
	r->size = size;
	return FT_OK;
}

static inline char *ft_copy_string(const char *s) {
	const size_t n = strlen(s) + 1;
	char *copy = (char *)malloc(n);
	if (copy) memcpy(copy, s, n);
	return copy;
}

FT_API void ft_close(ft_reader *r) {
	const int saved = errno;
	ft_guard_drop(r->guard);
	for (uint32_t n = 0; r->fd >= 0 && r->segments && n < FT_MOST_SEGMENTS; n++)
		if (r->segments[n]) ft_unmap((const unsigned char *)(r->segments[n] & ~(uintptr_t)3), FT_SEG_SIZE);
	if (r->fd >= 0 && r->base) ft_unmap(r->base, r->size);
	ft_close_file(r->fd);
	free(r->segments);
	free(r->path);
	free(r->instance);
	ft_none(r);
	errno = saved;
}

FT_API int ft_open(ft_reader *r, const char *path, const ft_options *options) {
	struct ft_header h;
	uint64_t size = 0;
	const unsigned char *base = NULL;
	ft_none(r);
	int err = ft_open_file(path, options, FT_HEADER_SIZE, &r->fd, &size);
	if (err) return err;
	err = ft_header_read(&h, r->fd);
	if (!err) err = ft_header_check(&h);
	if (!err && size < h.length) err = FT_ERR_TRUNCATED;
	if (!err) err = ft_begin(r, &h);
	if (!err && (r->path = ft_copy_string(path)) == NULL) err = FT_ERR_MEMORY;
	if (!err) err = ft_map(r->fd, 0, h.length, &base);
	if (!err) {
		r->base = base;
		r->size = (size_t)h.length;
		err = ft_guard_take(base, r->size, NULL, &r->guard);
	}
	if (err)
		ft_close(r);
	else if (options)
		r->options = *options;
	return err;
}
#endif /* FLOWTALLY_SHARED */

#ifdef __cplusplus
}
#endif

#endif /* FLOWTALLY_READER_H */
