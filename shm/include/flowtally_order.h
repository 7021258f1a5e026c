/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally_order.h: loading words that another process stores, in order.
 *
 * The compiler's builtins serve C and C++ alike. Every read has one shape:
 *
 *   s = ft_acquire(seq); words...; ft_fence(); seq again, relaxed.
 *
 * (The quick form of ft_load keeps the words of an earlier read, and loads seq alone.)
 *
 * The acquire orders the first load of seq before those of the words, so they are of
 * publish s or later. Before a writer overwrites them, it stores a newer sequence word
 * (or the intent), then a store fence. The load fence orders the words before the
 * second load of seq. So if a word comes from an overwrite, the second load finds the
 * newer sequence word, and the reader tries again.
 *
 * On arm64 this takes LDAR and DMB ISHLD. A load-acquire as the second load would not
 * replace the fence, because it orders only the accesses after it: it could itself
 * overtake the loads of the words. amd64 keeps loads in order, so neither the acquire
 * nor the fence is an instruction there. Both still restrain the compiler.
 *
 * The words themselves are loaded atomically (relaxed), so that no compiler splits or
 * repeats a load. Entries and whole copies are copied by memcpy, which the fence orders
 * too. A copy may be torn, so it must not be used before the second load of seq.
 *
 * From any thread: nothing here stores to the file.
 */
#ifndef FLOWTALLY_ORDER_H
#define FLOWTALLY_ORDER_H

#include "flowtally_system.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Tries of a call whose words the writer keeps changing. After them it returns FT_ERR_BUSY. */
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

/* Copies a string field of size bytes. The result ends with a NUL, even if the field does not. */
static inline void ft_string(char *to, const unsigned char *from, size_t size) {
	memcpy(to, from, size);
	to[size - 1] = 0;
}

#ifdef __cplusplus
}
#endif

#endif /* FLOWTALLY_ORDER_H */
