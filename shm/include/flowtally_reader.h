/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally_reader.h: opening a mirror, and going on with the file that took its name.
 *
 * Every offset is checked here, once, against the size that fstat gives: no content
 * of the file leads a reader outside its mapping later. The version is loaded with
 * acquire, because the writer stores it last: what else the header fixes is there.
 *
 * ft_open, ft_attach, ft_reopen and ft_close: one thread, while no other uses r;
 * they make system calls and allocate, but for ft_attach. All else that reads a
 * mirror may use r from any number of threads. Counters, cursors and snapshots
 * borrow from it: close them, or stop using them, before ft_close and ft_reopen.
 */
#ifndef FLOWTALLY_READER_H
#define FLOWTALLY_READER_H

#include "flowtally_file.h"
#include "flowtally_guard.h"
#include "flowtally_order.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A mapped mirror. To be filled by ft_open or ft_attach; fields are private. */
typedef struct ft_reader {
	const unsigned char *base;
	size_t size;
	const unsigned char *catalogue, *blocks, *records, *history;
	uint32_t counters, record_count, history_len;
	int fd;     /* -1 when attached */
	char *path; /* NULL when attached */
	int guard;  /* slot of the SIGBUS table, -1 without */
} ft_reader;

/* Maps the mirror at path and checks it. options may be NULL. */
FT_API int ft_open(ft_reader *r, const char *path, const ft_options *options);
/* The same for size bytes that are in memory already, 8-byte aligned. */
FT_API int ft_attach(ft_reader *r, const void *base, size_t size);
FT_API void ft_close(ft_reader *r);

/* Maps what is at the path of r now: after FT_SUPERSEDED, or when ft_moved says
 * so. On success counters, cursors and snapshots of r are worthless and names
 * have to be looked up again; on failure r is as it was. For a moment after
 * FT_SUPERSEDED the path still names the old file: call it again while the
 * status says so. */
FT_API int ft_reopen(ft_reader *r, const ft_options *options);
/* 1 when the path of r names another file, or none, 0 when it does not. */
FT_API int ft_moved(const ft_reader *r);

#ifndef FLOWTALLY_SHARED
/* Has a page of the file been lost? FT_ERR_TRUNCATED then, if the guard knows r. */
static inline int ft_whole(const ft_reader *r) { return ft_guard_whole(r->guard); }

/* ---- checking what is mapped --------------------------------------------- */

/* Checks a section that starts at *end or later, and moves *end behind it. */
static inline int ft_section(const ft_reader *r, int number, uint32_t stride, uint64_t count, uint64_t file_length,
			     uint64_t *end, const unsigned char **out) {
	const unsigned char *d = r->base + FT_HDR_SECTIONS + number * FT_SEC_SIZE;
	const uint64_t offset = ft_u64(d, FT_SEC_OFFSET), length = ft_u64(d, FT_SEC_LENGTH);
	/* count < 2^29 and stride < 2^12: no product below overflows. */
	if (ft_u32(d, FT_SEC_COUNT) != count || length != stride * count) return FT_ERR_SECTIONS;
	if (count == 0) {
		*out = r->base;
		return FT_OK;
	}
	if (ft_u32(d, FT_SEC_STRIDE) != stride) return FT_ERR_SECTIONS;
	if (offset % FT_SEC_ALIGN != 0 || offset < *end || offset > file_length || length > file_length - offset)
		return FT_ERR_SECTIONS;
	*end = offset + length;
	*out = r->base + offset;
	return FT_OK;
}

FT_API int ft_attach(ft_reader *r, const void *base, size_t size) {
	memset(r, 0, sizeof *r);
	r->fd = r->guard = -1;
	const unsigned char *p = (const unsigned char *)base;
	if (base == NULL || (uintptr_t)base % 8 != 0) return FT_ERR_ARGUMENT;
	if (size < FT_HEADER_SIZE) return FT_ERR_TRUNCATED;

	/* Acquire: the writer stores version last. */
	const uint32_t version = __atomic_load_n((const uint32_t *)(const void *)(p + FT_HDR_VERSION), __ATOMIC_ACQUIRE);
	if (version == 0) return FT_ERR_NOT_READY;
	if (memcmp(p, "FLOWTALY", 8) != 0) return FT_ERR_MAGIC;
	if (ft_u32(p, FT_HDR_BYTE_ORDER) != 0x01020304) return FT_ERR_BYTE_ORDER;
	if (version != 1) return FT_ERR_VERSION;
	if (ft_u32(p, FT_HDR_LENGTH) != FT_HEADER_SIZE || ft_u32(p, FT_HDR_CLOCK) != 1) return FT_ERR_HEADER;
	if (ft_u32(p, FT_HDR_INCOMPAT) != 0) return FT_ERR_FEATURE;
	if (ft_u64(p, FT_HDR_CHECKSUM) != ft_checksum(p, FT_HDR_CHECKSUM)) return FT_ERR_CHECKSUM;

	const uint32_t counters = ft_u32(p, FT_HDR_COUNTERS), records = ft_u32(p, FT_HDR_RECORDS);
	const uint32_t history = ft_u32(p, FT_HDR_HISTORY);
	const uint64_t length = ft_u64(p, FT_HDR_FILE_LENGTH), capacity = (uint64_t)counters + records;
	if (ft_u32(p, FT_HDR_BLOCK_LENGTH) != FT_BLK_LEN || counters % FT_BLK_LEN != 0 || (history & (history - 1)) != 0)
		return FT_ERR_HEADER;
	if (counters > FT_MOST_COUNTERS || records > FT_MOST_COUNTERS || history > FT_MOST_HISTORY) return FT_ERR_HEADER;
	if (length > size) return FT_ERR_TRUNCATED;

	r->base = p;
	r->size = size;
	uint64_t end = FT_HEADER_SIZE;
	int err = ft_section(r, 0, FT_ENT_SIZE, capacity, length, &end, &r->catalogue);
	if (!err) err = ft_section(r, 1, FT_BLK_SIZE, counters / FT_BLK_LEN, length, &end, &r->blocks);
	if (!err) err = ft_section(r, 2, FT_REC_SIZE, records, length, &end, &r->records);
	if (!err) err = ft_section(r, 3, FT_HIS_SIZE, history, length, &end, &r->history);
	r->counters = counters;
	r->record_count = records;
	r->history_len = history;
	return err;
}

/* ---- mapping ------------------------------------------------------------- */

FT_API int ft_open(ft_reader *r, const char *path, const ft_options *options) {
	const unsigned char *base = NULL;
	size_t size = 0;
	int fd = -1;
	memset(r, 0, sizeof *r);
	r->fd = r->guard = -1;
	int err = ft_map(path, options, &fd, &base, &size);
	if (err) return err;
	char *name = (char *)malloc(strlen(path) + 1);
	if (name == NULL) err = FT_ERR_MEMORY;
	const int guard = err ? -1 : ft_guard_take(base, size);
	if (!err) err = ft_attach(r, base, size);
	r->guard = guard;
	if (!err) err = ft_whole(r);
	if (err) {
		ft_guard_drop(guard);
		free(name);
		ft_unmap(fd, base, size);
		memset(r, 0, sizeof *r);
		r->fd = r->guard = -1;
		return err;
	}
	memcpy(name, path, strlen(path) + 1);
	r->fd = fd;
	r->path = name;
	return FT_OK;
}

FT_API void ft_close(ft_reader *r) {
	ft_guard_drop(r->guard);
	if (r->fd >= 0) ft_unmap(r->fd, r->base, r->size);
	free(r->path);
	memset(r, 0, sizeof *r);
	r->fd = r->guard = -1;
}

FT_API int ft_reopen(ft_reader *r, const ft_options *options) {
	ft_reader next;
	if (r->path == NULL) return FT_ERR_ARGUMENT;
	const int err = ft_open(&next, r->path, options);
	if (err) return err;
	ft_close(r);
	*r = next;
	return FT_OK;
}

FT_API int ft_moved(const ft_reader *r) {
	struct stat here, there;
	if (r->path == NULL) return 0;
	if (fstat(r->fd, &here) != 0 || lstat(r->path, &there) != 0) return 1;
	return here.st_ino != there.st_ino || here.st_dev != there.st_dev;
}
#endif /* FLOWTALLY_SHARED */

#ifdef __cplusplus
}
#endif

#endif /* FLOWTALLY_READER_H */
