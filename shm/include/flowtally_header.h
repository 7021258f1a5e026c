/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally_header.h: the part of a mirror's header that never changes.
 *
 * These 128 bytes are copied once. The copy is checked and used, and the file's own bytes
 * are never read again, so that a file that changes meanwhile misleads no reader. The
 * checksum covers the version, which the writer stores last, so that a copy of an
 * unfinished header is refused.
 *
 * For the other headers, from any thread.
 */
#ifndef FLOWTALLY_HEADER_H
#define FLOWTALLY_HEADER_H

#include "flowtally_file.h"
#include "flowtally_order.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef FLOWTALLY_SHARED
/* The copy, and the numbers that the reader takes from it. */
struct ft_header {
	uint64_t words[FT_HDR_FIXED / 8];
	uint64_t file;    /* names the file, not 0 */
	uint32_t history; /* records of the ring: 0 or a power of two */
	uint64_t length;  /* of header and ring: the segments begin there */
};

/* Copies the words of a header that is in memory, each with one load. Acquire: the
 * writer stores version last, so that the words that are loaded after it are there. */
static inline void ft_header_copy(struct ft_header *h, const unsigned char *p) {
	(void)ft_acquire(ft_word(p, FT_HDR_VERSION));
	for (size_t i = 0; i < FT_HDR_FIXED / 8; i++) h->words[i] = ft_u64(p, 8 * i);
}

/* The same for a file, without a mapping. */
static inline int ft_header_read(struct ft_header *h, int fd) {
	ssize_t n;
	do n = pread(fd, h->words, sizeof h->words, 0);
	while (n < 0 && errno == EINTR);
	if (n < 0) return FT_ERR_SYSTEM;
	return n == (ssize_t)sizeof h->words ? FT_OK : FT_ERR_TRUNCATED;
}

static inline int ft_header_check(struct ft_header *h) {
	const unsigned char *p = (const unsigned char *)h->words;
	const uint32_t version = ft_u32(p, FT_HDR_VERSION), history = ft_u32(p, FT_HDR_HISTORY);
	if (version == 0) return FT_ERR_NOT_READY;
	if (memcmp(p, "FLOWTALY", 8) != 0) return FT_ERR_MAGIC;
	if (ft_u32(p, FT_HDR_BYTE_ORDER) != 0x01020304) return FT_ERR_BYTE_ORDER;
	if (version != 1) return FT_ERR_VERSION;
	if (ft_u32(p, FT_HDR_INCOMPAT) != 0) return FT_ERR_FEATURE;
	if (ft_u64(p, FT_HDR_CHECKSUM) != ft_checksum(p, FT_HDR_CHECKSUM)) return FT_ERR_CHECKSUM;
	if (ft_u32(p, FT_HDR_LENGTH) != FT_HEADER_SIZE || ft_u32(p, FT_HDR_CLOCK) != 1) return FT_ERR_HEADER;
	if (ft_u64(p, FT_HDR_SEGMENT_LENGTH) != FT_SEG_SIZE || ft_u32(p, FT_HDR_SEGMENT_COUNTERS) != FT_SEG_COUNTERS)
		return FT_ERR_HEADER;
	if (ft_u32(p, FT_HDR_BLOCK_LENGTH) != FT_BLK_LEN || ft_u64(p, FT_HDR_FILE) == 0) return FT_ERR_HEADER;
	if ((history & (history - 1)) != 0 || history == 1 || history > FT_MOST_HISTORY) return FT_ERR_HEADER;
	h->file = ft_u64(p, FT_HDR_FILE);
	h->history = history;
	/* history < 2^29: no overflow. The ring ends at a multiple of FT_HEADER_SIZE. */
	h->length = FT_HEADER_SIZE + ((uint64_t)history * FT_HIS_SIZE + FT_HEADER_SIZE - 1) / FT_HEADER_SIZE * FT_HEADER_SIZE;
	return FT_OK;
}
#endif /* FLOWTALLY_SHARED */

#ifdef __cplusplus
}
#endif

#endif /* FLOWTALLY_HEADER_H */
