/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally_guard.h: surviving a mirror that is cut short.
 *
 * A writer never shortens a mirror, and only the owner of the directory could:
 * touching pages that are cut off raises SIGBUS, as for every mapped file. A
 * program that must survive even that calls ft_guard_sigbus before it opens
 * mirrors: what was cut off then reads as never sampled, and ft_get_status,
 * ft_lookup, ft_get_entry, ft_snapshot_take and what waits answer FT_ERR_TRUNCATED
 * from there on. ft_load looks for nothing: it is for hot paths.
 *
 * The handler touches what is in its table alone. A slot of the table is taken by
 * compare-and-swap; base and lost are stored before size (release), and the handler
 * loads size first (acquire). It calls mmap(2), which is a bare system call, and
 * keeps errno; every other SIGBUS goes to who handled it before. A program that
 * installs a handler of SIGBUS of its own later takes its place.
 *
 * From any thread. ft_guard_take, ft_guard_drop and ft_guard_whole are for the
 * other headers.
 */
#ifndef FLOWTALLY_GUARD_H
#define FLOWTALLY_GUARD_H

#include "flowtally_result.h"
#include "flowtally_system.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes this process survive a mirror that is cut short: installs a handler of
 * SIGBUS that puts zeros in the place of lost pages of mirrors opened
 * afterwards (up to 64 at a time), and hands every other SIGBUS on. Once. */
FT_API int ft_guard_sigbus(void);

#ifndef FLOWTALLY_SHARED
enum { FT_GUARDS = 64 };

/* One mapping that the handler may mend. size 0: free. Changed by
 * compare-and-swap and stores alone, so that the handler may read it. */
struct ft_guarded {
	uintptr_t base, size;
	int taken, lost;
};

struct ft_guard_table {
	int installed;
	uintptr_t page;
	struct sigaction before;
	struct ft_guarded slot[FT_GUARDS];
};

/* One table per program, whoever includes the header: weak, so that the linker
 * keeps one. */
__attribute__((weak)) struct ft_guard_table ft_guards;

__attribute__((weak)) void ft_on_sigbus(int number, siginfo_t *info, void *context);
__attribute__((weak)) void ft_on_sigbus(int number, siginfo_t *info, void *context) {
	const uintptr_t at = (uintptr_t)info->si_addr;
	for (int i = 0; i < FT_GUARDS; i++) {
		struct ft_guarded *g = &ft_guards.slot[i];
		const uintptr_t size = __atomic_load_n(&g->size, __ATOMIC_ACQUIRE);
		if (size == 0 || at < g->base || at - g->base >= size) continue;
		const int saved = errno;
		const uintptr_t page = ft_guards.page;
		void *start = (void *)(at & ~(page - 1));
		/* Only the page: others may still be there. mmap is a bare system call. */
		void *got = mmap(start, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		errno = saved;
		if (got == MAP_FAILED) break;
		__atomic_store_n(&g->lost, 1, __ATOMIC_RELEASE);
		return;
	}
	/* Not ours: as if we were not there. */
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

static inline int ft_guard_take(const void *base, size_t size) {
	if (!__atomic_load_n(&ft_guards.installed, __ATOMIC_ACQUIRE)) return -1;
	for (int i = 0; i < FT_GUARDS; i++) {
		struct ft_guarded *g = &ft_guards.slot[i];
		int no = 0;
		if (!__atomic_compare_exchange_n(&g->taken, &no, 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) continue;
		g->base = (uintptr_t)base;
		__atomic_store_n(&g->lost, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&g->size, (uintptr_t)size, __ATOMIC_RELEASE);
		return i;
	}
	return -1;
}

static inline void ft_guard_drop(int slot) {
	if (slot < 0) return;
	__atomic_store_n(&ft_guards.slot[slot].size, (uintptr_t)0, __ATOMIC_RELEASE);
	__atomic_store_n(&ft_guards.slot[slot].taken, 0, __ATOMIC_RELEASE);
}

/* For the calls that are not on a hot path: has the handler mended anything? */
static inline int ft_guard_whole(int slot) {
	return slot >= 0 && __atomic_load_n(&ft_guards.slot[slot].lost, __ATOMIC_ACQUIRE) ? FT_ERR_TRUNCATED : FT_OK;
}
#endif /* FLOWTALLY_SHARED */

#ifdef __cplusplus
}
#endif

#endif /* FLOWTALLY_GUARD_H */
