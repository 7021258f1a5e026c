/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally_order.h: loading words that another process stores, in order.
 *
 * The compiler's builtins serve C and C++ alike. Every read has one shape:
 *
 *   s = ft_acquire(seq); words...; ft_fence(); seq again, relaxed.
 *
 * (ft_load has done its acquire in an earlier read.)
 *
 * The acquire keeps the words from being loaded before s: they are of publish s or
 * later. A writer that begins to overwrite them has stored a newer sequence word (or
 * the intent) first, with a store fence between. The load fence keeps the second load
 * of seq behind the words: if a word came from an overwrite, the second load sees the
 * newer sequence word, and differs from s.
 *
 * On arm64 that takes LDAR and DMB ISHLD. A load-acquire for the second load would not
 * do: it holds back the loads after it, not those before it. On amd64, where loads stay
 * in order, neither costs an instruction.
 *
 * The words themselves are loaded atomically (relaxed), so that no compiler splits or
 * repeats a load. Entries and whole copies are taken by memcpy, which is in order with
 * the fence too. A torn copy is thrown away before anything looks at it.
 *
 * From any thread: nothing here stores to the file.
 */
#ifndef FLOWTALLY_ORDER_H
#define FLOWTALLY_ORDER_H

#include "flowtally_system.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How often a call tries while the writer changes the words. Then it returns FT_ERR_BUSY. */
enum { FT_ATTEMPTS = 64 };

static inline uint64_t ft_acquire(const uint64_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static inline uint64_t ft_relaxed(const uint64_t *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
static inline void ft_fence(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }

/* Words of the file. Every offset is a multiple of the size of the word, and every
 * mapping is page-aligned; ft_attach refuses memory that is not 8-byte aligned. */
static inline const uint64_t *ft_word(const unsigned char *p, size_t offset) {
	return (const uint64_t *)(const void *)(p + offset);
}
static inline uint64_t ft_u64(const unsigned char *p, size_t offset) { return ft_relaxed(ft_word(p, offset)); }
static inline int64_t ft_i64(const unsigned char *p, size_t offset) { return (int64_t)ft_u64(p, offset); }
static inline uint32_t ft_u32(const unsigned char *p, size_t offset) {
	return __atomic_load_n((const uint32_t *)(const void *)(p + offset), __ATOMIC_RELAXED);
}

/* Copies a string field of size bytes, and ends it with a NUL whatever the file holds. */
static inline void ft_string(char *to, const unsigned char *from, size_t size) {
	memcpy(to, from, size);
	to[size - 1] = 0;
}

#ifdef __cplusplus
}
#endif

#endif /* FLOWTALLY_ORDER_H */
