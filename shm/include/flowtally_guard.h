/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally_guard.h: surviving a mirror that is cut short.
 *
 * Only the file's owner can cut off pages that a reader maps, and a writer never does.
 * As for every mapped file, a load from such a page raises SIGBUS.
 *
 * A program that must survive that should call ft_guard_sigbus before it opens mirrors.
 * The handler then replaces the lost page by a page of zeros, whose values read as never
 * sampled. From then on ft_get_status, ft_lookup, ft_get_entry, ft_snapshot_take,
 * ft_cursor_next and ft_wait return FT_ERR_TRUNCATED. ft_load does not check for it,
 * because it is for hot paths.
 *
 * A signal handler must not lock or allocate. So the handler reads a list of mappings
 * whose elements are never freed: a reader takes one by compare-and-swap, and gives it
 * back. A reader stores base first, then size with release; the handler loads size with
 * acquire, then base. So if it sees a size, it sees its base, on arm64 too. The handler
 * calls only mmap(2), and restores errno. It passes every other SIGBUS to the handler
 * installed before. If a program installs its own handler later, that one replaces this.
 *
 * Any thread may call ft_guard_sigbus. The other functions are for the other headers.
 */
#ifndef FLOWTALLY_GUARD_H
#define FLOWTALLY_GUARD_H

#include "flowtally_result.h"
#include "flowtally_system.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes this process survive a mirror that is cut short: installs a handler of SIGBUS for
 * the mirrors to be opened afterwards. A second call does nothing. */
FT_API int ft_guard_sigbus(void);

#ifndef FLOWTALLY_SHARED
/* One mapping that the handler may mend. size 0: unused. */
struct ft_guarded {
	struct ft_guarded *next;  /* constant once the element is in the list */
	struct ft_guarded *owner; /* of the reader's first mapping: its lost is set */
	uintptr_t base, size;
	int taken, lost;
};

struct ft_guard_table {
	int installed;
	uintptr_t page;
	struct sigaction before;
	struct ft_guarded *first;
};

/* One table per program, however many files include the header: weak, so that the
 * linker keeps one. */
__attribute__((weak)) struct ft_guard_table ft_guards;

/* Puts zeros in the place of length bytes of a mapping. */
static inline int ft_guard_mend(uintptr_t start, uintptr_t length) {
	void *at = (void *)start;
	return mmap(at, length, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

__attribute__((weak)) void ft_on_sigbus(int number, siginfo_t *info, void *context);
__attribute__((weak)) void ft_on_sigbus(int number, siginfo_t *info, void *context) {
	const uintptr_t at = (uintptr_t)info->si_addr;
	for (struct ft_guarded *g = __atomic_load_n(&ft_guards.first, __ATOMIC_ACQUIRE); g != NULL; g = g->next) {
		const uintptr_t size = __atomic_load_n(&g->size, __ATOMIC_ACQUIRE);
		const uintptr_t base = __atomic_load_n(&g->base, __ATOMIC_RELAXED);
		if (size == 0 || at < base || at - base >= size) continue;
		const int saved = errno;
		const uintptr_t page = at & ~(ft_guards.page - 1);
		/* Only the page, because the others may still be there. All of the mapping if
		 * the process has no room for one more mapping (ENOMEM). */
		const int mended = ft_guard_mend(page, ft_guards.page) || ft_guard_mend(base, size);
		errno = saved;
		if (!mended) break;
		struct ft_guarded *owner = __atomic_load_n(&g->owner, __ATOMIC_RELAXED);
		if (owner != NULL) __atomic_store_n(&owner->lost, 1, __ATOMIC_RELEASE);
		return;
	}
	/* Not of a mirror: as if this handler were not there. */
	const struct sigaction *before = &ft_guards.before;
	if (before->sa_flags & SA_SIGINFO) {
		before->sa_sigaction(number, info, context);
	} else if (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN) {
		before->sa_handler(number);
	} else {
		(void)sigaction(number, before, NULL); /* the fault comes again, and ends the process */
	}
}

FT_API int ft_guard_sigbus(void) {
	int no = 0;
	if (!__atomic_compare_exchange_n(&ft_guards.installed, &no, 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return FT_OK;
	ft_guards.page = (uintptr_t)sysconf(_SC_PAGESIZE);
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_sigaction = ft_on_sigbus;
	action.sa_flags = SA_SIGINFO | SA_ONSTACK;
	sigemptyset(&action.sa_mask);
	if (sigaction(SIGBUS, NULL, &ft_guards.before) != 0 || sigaction(SIGBUS, &action, NULL) != 0) return FT_ERR_SYSTEM;
	return FT_OK;
}

/* An unused element of the list, or a new one; NULL: there is no memory. */
static inline struct ft_guarded *ft_guard_element(void) {
	struct ft_guarded *g = __atomic_load_n(&ft_guards.first, __ATOMIC_ACQUIRE);
	for (; g != NULL; g = g->next) {
		int no = 0;
		if (__atomic_compare_exchange_n(&g->taken, &no, 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return g;
	}
	g = (struct ft_guarded *)calloc(1, sizeof *g);
	if (g == NULL) return NULL;
	g->taken = 1;
	g->next = __atomic_load_n(&ft_guards.first, __ATOMIC_ACQUIRE);
	while (!__atomic_compare_exchange_n(&ft_guards.first, &g->next, g, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) continue;
	return g;
}

/* Guards a mapping, if the handler is installed; *out is NULL otherwise. owner is NULL,
 * or the element of the same reader's first mapping. */
static inline int ft_guard_take(const void *base, size_t size, struct ft_guarded *owner, struct ft_guarded **out) {
	*out = NULL;
	if (!__atomic_load_n(&ft_guards.installed, __ATOMIC_ACQUIRE)) return FT_OK;
	struct ft_guarded *g = ft_guard_element();
	if (g == NULL) return FT_ERR_MEMORY;
	__atomic_store_n(&g->lost, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&g->owner, owner ? owner : g, __ATOMIC_RELAXED);
	__atomic_store_n(&g->base, (uintptr_t)base, __ATOMIC_RELAXED);
	__atomic_store_n(&g->size, (uintptr_t)size, __ATOMIC_RELEASE);
	*out = g;
	return FT_OK;
}

/* Gives back one element, before its mapping is unmapped. */
static inline void ft_guard_release(struct ft_guarded *g) {
	if (g == NULL) return;
	__atomic_store_n(&g->size, (uintptr_t)0, __ATOMIC_RELEASE);
	__atomic_store_n(&g->owner, (struct ft_guarded *)NULL, __ATOMIC_RELAXED);
	__atomic_store_n(&g->taken, 0, __ATOMIC_RELEASE);
}

/* Gives back an element and those that it owns. */
static inline void ft_guard_drop(struct ft_guarded *owner) {
	if (owner == NULL) return;
	for (struct ft_guarded *g = __atomic_load_n(&ft_guards.first, __ATOMIC_ACQUIRE); g != NULL; g = g->next)
		if (g != owner && __atomic_load_n(&g->owner, __ATOMIC_RELAXED) == owner) ft_guard_release(g);
	ft_guard_release(owner);
}

/* FT_ERR_TRUNCATED when the handler has mended a mapping of this element or of one
 * that it owns. */
static inline int ft_guard_whole(const struct ft_guarded *g) {
	return g != NULL && __atomic_load_n(&g->lost, __ATOMIC_ACQUIRE) ? FT_ERR_TRUNCATED : FT_OK;
}
#endif /* FLOWTALLY_SHARED */

#ifdef __cplusplus
}
#endif

#endif /* FLOWTALLY_GUARD_H */
