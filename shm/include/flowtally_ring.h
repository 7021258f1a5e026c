/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally_ring.h: counting the completion queue of an mlx5 device into reserved words, where
 * the device writes its entries.
 *
 *     ft_ring ring;
 *     int err = ft_ring_open(&ring, dv.buf, dv.cqe_cnt, dv.cqe_size, 0);
 *     for (; !err;) err = ft_ring_count(&ring, ibv_poll_cq(cq, 64, done), &words);
 *
 * ft_ring_count makes no system call, and waits for no process. One thread at a time may use
 * an ft_ring. It needs no header of rdma-core.
 *
 * Poll every completion of a queue pair before it is destroyed or reset: after mlx5dv_init_obj
 * libmlx5 leaves its entries in the queue, and ibv_poll_cq fails on each. Do not resize the queue.
 */
#ifndef FLOWTALLY_RING_H
#define FLOWTALLY_RING_H

#include "flowtally_words.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The completion queue of an mlx5 device, as mlx5dv_init_obj describes it. missed is for
 * programs; the rest is private. */
typedef struct ft_ring {
	uint64_t missed; /* polled completions that were not counted */
	unsigned char *entries;
	uint32_t count, size, format;
	uint32_t counted, polled; /* completions, mod 2^32 */
	int corrupt;
} ft_ring;

/* Counts a ring from now on: the queue must not have completed anything yet. compression is
 * cqe_comp_res_format of struct mlx5dv_cq_init_attr: HASH, CSUM or CSUM_STRIDX; 0: the device
 * compresses no entries. */
FT_API int ft_ring_open(ft_ring *r, void *entries, uint32_t count, uint32_t entry_size, uint32_t compression);
/* Counts the entries that the device has written since the last call. polled is the number of
 * completions that ibv_poll_cq has returned since then; a negative number is an error of
 * ibv_poll_cq and counts as 0, although that call may have taken completions off the queue: make
 * the queue and its ft_ring anew then. Call it at least once in a round of the queue.
 * FT_ERR_MISSED: polled entries were written over before they were counted. The words are too
 * low by their number, which r->missed has grown by. Counting goes on behind them.
 * FT_ERR_CORRUPT: a compressed entry is not valid. Each later call returns it too.
 *
 * In a compressed ring it writes each compressed entry as the device would have written it
 * alone, so that ibv_poll_cq can read it: poll ft_ring_ready completions at most. */
FT_API int ft_ring_count(ft_ring *r, int polled, ft_words *w);
/* The number of counted completions that ibv_poll_cq has not returned. */
FT_API uint32_t ft_ring_ready(const ft_ring *r);

/* Of an entry of a completion queue: struct mlx5_cqe64 of mlx5dv.h, and its compression. */
enum {
	FT_RING_HASH = 1,
	FT_RING_CSUM = 2,
	FT_RING_CSUM_STRIDX = 4,

	FT_CQE_HASH = 0x0c,
	FT_CQE_CSUM = 0x14,
	FT_CQE_BYTES = 0x2c,
	FT_CQE_OPCODE = 0x38, /* of the request */
	FT_CQE_WQE = 0x3c,
	FT_CQE_LAST = 0x3f,
	FT_CQE_SIZE = 64,

	FT_CQE_OWNER = 1,
	FT_CQE_COMPRESSED = 0xc,
	FT_CQE_REQUESTER = 0,
	FT_CQE_REQUESTER_ERROR = 0xd,
	FT_CQE_RESPONDER_ERROR = 0xe,
	FT_CQE_INVALID = 0xf
};

#ifndef FLOWTALLY_SHARED
FT_API int ft_ring_open(ft_ring *r, void *entries, uint32_t count, uint32_t entry_size, uint32_t compression) {
	memset(r, 0, sizeof *r);
	if (entries == NULL || (uintptr_t)entries % 64 != 0 || (entry_size != 64 && entry_size != 128)) return FT_ERR_ARGUMENT;
	if (count == 0 || (count & (count - 1)) != 0 || count > 1u << 24) return FT_ERR_ARGUMENT;
	if (compression != 0 && compression != FT_RING_HASH && compression != FT_RING_CSUM && compression != FT_RING_CSUM_STRIDX) return FT_ERR_ARGUMENT;
	r->entries = (unsigned char *)entries;
	r->count = count;
	r->size = entry_size;
	r->format = compression;
	return FT_OK;
}

/* The 64 bytes of entry i, mod 2^32. Of an entry of 128 bytes they are the second half. */
static inline unsigned char *ft_ring_entry(const ft_ring *r, uint32_t i) {
	return r->entries + ((size_t)(i & (r->count - 1)) + 1) * r->size - FT_CQE_SIZE;
}

static inline unsigned ft_ring_round(const ft_ring *r, uint32_t i) { return (i & r->count) != 0; }

/* Writes the entries of the block that begins at r->counted. Its title has their number, n, in
 * the place of the byte count. Eight entries at a time are an array of 8 bytes each: in the
 * entry behind the title, and then in each eighth entry from the title on. */
static inline int ft_ring_expand(const ft_ring *r) {
	unsigned char e[FT_CQE_SIZE], array[FT_CQE_SIZE] = {0};
	memcpy(e, ft_ring_entry(r, r->counted), sizeof e);
	const uint32_t n = (uint32_t)e[FT_CQE_BYTES] << 24 | (uint32_t)e[FT_CQE_BYTES + 1] << 16 | (uint32_t)e[FT_CQE_BYTES + 2] << 8 | e[FT_CQE_BYTES + 3];
	const unsigned first = (unsigned)e[FT_CQE_WQE] << 8 | e[FT_CQE_WQE + 1];
	if (n < 2 || n > r->count) return FT_ERR_CORRUPT;
	for (uint32_t i = 0; i < n; i++) {
		if (i % 8 == 0) memcpy(array, ft_ring_entry(r, r->counted + (i ? i : 1)), sizeof array);
		const unsigned char *const one = array + i % 8 * 8;
		const unsigned wqe = first + i;
		e[FT_CQE_WQE] = (unsigned char)(wqe >> 8);
		e[FT_CQE_WQE + 1] = (unsigned char)wqe;
		memcpy(e + FT_CQE_BYTES, one + 4, 4);
		if (e[FT_CQE_LAST] >> 4 == FT_CQE_REQUESTER) {
			memcpy(e + FT_CQE_WQE, one, 2);
			e[FT_CQE_OPCODE] = one[2];
		} else if (r->format == FT_RING_HASH) {
			memcpy(e + FT_CQE_HASH, one, 4);
		} else {
			memcpy(e + FT_CQE_CSUM, one, 2);
			if (r->format == FT_RING_CSUM_STRIDX) memcpy(e + FT_CQE_WQE, one + 2, 2);
		}
		e[FT_CQE_LAST] = (unsigned char)((e[FT_CQE_LAST] & 0xf2u) | ft_ring_round(r, r->counted + i)); /* no format, and the owner bit */
		memcpy(ft_ring_entry(r, r->counted + i), e, sizeof e);
	}
	return FT_OK;
}

/* Goes on behind the polled completions if more than most of them were not counted. */
static inline int ft_ring_skip(ft_ring *r, uint32_t most) {
	const uint32_t behind = r->polled - r->counted;
	if ((int32_t)behind <= (int32_t)most || r->corrupt) return FT_OK;
	r->missed += behind;
	r->counted = r->polled;
	return FT_ERR_MISSED;
}

/* The last byte of an entry: opcode, two bits of format, one of solicited, and the owner bit,
 * which is the parity of the round in which the device wrote the entry. The device writes it
 * last. */
FT_API int ft_ring_count(ft_ring *r, int polled, ft_words *w) {
	uint64_t done = 0, failed = 0;
	if (polled > 0) r->polled += (uint32_t)polled;
	int err = ft_ring_skip(r, r->count); /* the owner bit of two rounds later is the same */
	while (!r->corrupt) {
		const unsigned char last = __atomic_load_n(ft_ring_entry(r, r->counted) + FT_CQE_LAST, __ATOMIC_ACQUIRE);
		const unsigned opcode = last >> 4;
		if (opcode == FT_CQE_INVALID || (last & FT_CQE_OWNER) != ft_ring_round(r, r->counted)) {
			if (ft_ring_skip(r, 0) == FT_OK) break;
			err = FT_ERR_MISSED;
			continue;
		}
		if (r->format != 0 && (last & FT_CQE_COMPRESSED) == FT_CQE_COMPRESSED) {
			r->corrupt = ft_ring_expand(r) != FT_OK;
			continue;
		}
		if (opcode == FT_CQE_REQUESTER_ERROR || opcode == FT_CQE_RESPONDER_ERROR)
			failed++;
		else
			done++;
		r->counted++;
	}
	ft_words_add(w, done, failed);
	return r->corrupt ? FT_ERR_CORRUPT : err;
}

FT_API uint32_t ft_ring_ready(const ft_ring *r) {
	const uint32_t ready = r->counted - r->polled;
	return (int32_t)ready > 0 ? ready : 0; /* polled entries behind one that is not valid are not counted */
}
#endif /* FLOWTALLY_SHARED */

#ifdef __cplusplus
}
#endif

#endif /* FLOWTALLY_RING_H */
