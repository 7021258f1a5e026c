/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally_wait.h: sleeping until a counter of a mirror has reached a count.
 *
 *     ft_value v;
 *     int err = ft_wait(&r, h, 1000000, 5000000000, &v);   five seconds at most
 *     if (err == FT_ERR_TIMEOUT) printf("only %" PRIu64 "\n", v.packets);
 *
 * What is promised (docs/mirror-format.md, 9)
 *
 *   - No wake is missed, and none is too early: FT_OK means that the threshold
 *     was seen reached, FT_ERR_TIMEOUT that the time is over.
 *   - The mirror stays mapped read-only. A sleeper tells the writer that it is
 *     there by one pwrite(2) to NAME.wait, twice a second; killed, it leaves
 *     nothing behind. Who may not write to that file (its group may) sleeps for
 *     the length of a poll cycle, and looks: ft_wakeable tells.
 *   - Signals do not end it, and it never outlasts its writer: FT_ERR_NOT_ALIVE.
 *
 * Threads: any number may wait on one reader. Linux (futex(2)); elsewhere a
 * waiter looks once per cycle.
 */
#ifndef FLOWTALLY_WAIT_H
#define FLOWTALLY_WAIT_H

#include "flowtally.h"

#ifdef __linux__
#include <sys/syscall.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Sleeps until the first value of the counter (packets, or completions) is at
 * least threshold; *out is the value then, or the last one seen when it ends
 * otherwise. A value that was never sampled reaches no threshold, not even 0.
 * timeout_ns below 0 is none; 0 only looks.
 *
 * FT_ERR_TIMEOUT. FT_ERR_COMPLETION: the counter is of kind "completion", and its
 * second value (completions in error) differs from what it was at the call; that
 * the threshold is reached comes first. FT_ERR_GONE: the counter was removed.
 * FT_ERR_NOT_ALIVE: the writer ended, has given no sign of life for two heartbeat
 * periods, or a larger file took the name (ft_reopen). */
FT_API int ft_wait(const ft_reader *r, ft_handle h, uint64_t threshold, int64_t timeout_ns, ft_value *out);

/* Sleeps until the counter shows other numbers than since, which the caller read
 * before: so no change between that read and the call is missed. A new sample of
 * the same numbers is none; the first sample is one. Results as above, but for
 * FT_ERR_COMPLETION. */
FT_API int ft_wait_change(const ft_reader *r, ft_handle h, const ft_value *since, int64_t timeout_ns, ft_value *out);

/* FT_OK: the writer wakes who waits on r. Else they look once per poll cycle (at
 * most a thousand times a second), because FT_ERR_NO_WAKE: the writer wakes
 * nobody, or r was attached; another: NAME.wait cannot be opened. */
FT_API int ft_wakeable(const ft_reader *r);

#ifndef FLOWTALLY_SHARED
/* ---- the system's part --------------------------------------------------- */

enum {
	FT_FUTEX_WAIT_BITSET = 9, /* until a time of CLOCK_MONOTONIC; shared between processes */
	FT_LEASE = 1000000000,    /* ns: how far ahead a lease is raised */
	FT_LEASE_RENEWAL = FT_LEASE / 2,
	FT_NAP = 1000000          /* ns: the shortest pause where nobody wakes */
};

static inline int64_t ft_less(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t ft_more(int64_t a, int64_t b) { return a > b ? a : b; }

static inline struct timespec ft_timespec(int64_t ns) {
	struct timespec t;
	t.tv_sec = (time_t)(ns / 1000000000);
	t.tv_nsec = (long)(ns % 1000000000);
	return t;
}

/* Sleeps while the word is value, until it is woken or until has come; 0, or
 * the number of the error. */
static inline int ft_futex_wait(const void *word, uint32_t value, int64_t until) {
	const struct timespec t = ft_timespec(until > 0 ? until : 0);
#ifdef __linux__
	long number = SYS_futex;
#ifdef SYS_futex_time64
	if (sizeof t.tv_sec > sizeof(long)) number = SYS_futex_time64;
#endif
	return syscall(number, word, FT_FUTEX_WAIT_BITSET, value, &t, NULL, 0xffffffff) == 0 ? 0 : errno;
#else
	(void)word, (void)value, (void)t;
	return ENOSYS;
#endif
}

/* Opens NAME.wait. It is where eight bytes will be written, so whose it is
 * matters: that of the owner of the directory, who alone may put it there, and
 * under no other name. */
static inline int ft_lease_open(const ft_reader *r, int *fd) {
	struct stat st, dir;
	int err = FT_OK;
	*fd = -1;
	if (r->path == NULL) return FT_ERR_NO_WAKE;
	char *name = ft_beside(r->path, ".wait");
	if (name == NULL) return FT_ERR_MEMORY;
	const int got = open(name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (got < 0) {
		err = ft_open_error();
	} else {
		char *slash = strrchr(name, '/');
		if (slash) slash[slash == name] = 0; /* of "/NAME.wait": "/" */
		if (fstat(got, &st) != 0 || stat(slash ? name : ".", &dir) != 0)
			err = FT_ERR_SYSTEM;
		else if (!S_ISREG(st.st_mode))
			err = FT_ERR_NOT_FILE;
		else if (st.st_nlink != 1 || st.st_uid != dir.st_uid)
			err = FT_ERR_OWNER;
	}
	free(name);
	if (err && got >= 0) (void)close(got);
	if (!err) *fd = got;
	return err;
}

/* ---- one waiter ---------------------------------------------------------- */

struct ft_waiter {
	const ft_reader *r;
	int64_t deadline;
	int lease;         /* -1: there is none to raise */
	uint64_t lease_of; /* generation of the writer that it was opened for; 0: none */
	int64_t raised_at;
	uint64_t cycle;    /* what was seen last, to learn the length of a cycle */
	int64_t cycle_at, length;
};

static inline int ft_wait_watched(const ft_reader *r) {
	return ft_acquire(ft_word(r->base, FT_HDR_WAIT_GENERATION)) == ft_acquire(ft_word(r->base, FT_HDR_GENERATION));
}

/* Whether nobody publishes any more. */
static inline int ft_wait_over(const ft_reader *r) {
	const uint32_t state = __atomic_load_n((const uint32_t *)(const void *)(r->base + FT_HDR_STATE), __ATOMIC_ACQUIRE);
	const uint64_t age = (uint64_t)ft_now() - ft_u64(r->base, FT_HDR_HEARTBEAT);
	if (state != FT_BOOT && state != FT_RUN) return 1;
	return (int64_t)age >= 0 && age / 2 > ft_u64(r->base, FT_HDR_HEARTBEAT_PERIOD);
}

/* Sees to the lease, and tells whether the writer wakes this waiter. */
static inline int ft_wait_raise(struct ft_waiter *w) {
	if (!ft_wait_watched(w->r)) return 0;
	const uint64_t generation = ft_u64(w->r->base, FT_HDR_GENERATION);
	if (w->lease_of != generation) { /* another writer may have another file */
		if (w->lease >= 0) (void)close(w->lease);
		w->lease_of = generation;
		w->raised_at = 0;
		(void)ft_lease_open(w->r, &w->lease); /* without one it looks */
	}
	if (w->lease < 0) return 0;
	for (int64_t now = ft_now(); now - w->raised_at >= FT_LEASE_RENEWAL; now = ft_now()) {
		const int64_t until = now + FT_LEASE;
		ssize_t n;
		do n = pwrite(w->lease, &until, sizeof until, 0);
		while (n < 0 && errno == EINTR);
		if (n != (ssize_t)sizeof until) {
			(void)close(w->lease);
			w->lease = -1;
			return 0;
		}
		/* Held up for long between the two, it may have lowered what others
		 * raised: then it does so again. */
		w->raised_at = now;
	}
	return 1;
}

/* When to look again where nobody wakes: once per poll cycle. */
static inline int64_t ft_wait_pace(struct ft_waiter *w, int64_t now, int64_t most) {
	const uint64_t cycle = ft_acquire(ft_word(w->r->base, FT_HDR_CYCLE_DONE));
	const int64_t at = ft_i64(w->r->base, FT_HDR_CYCLE_DONE_AT);
	if (w->cycle != 0 && cycle > w->cycle && at > w->cycle_at && cycle - w->cycle < UINT32_MAX)
		w->length = (int64_t)(((uint64_t)at - (uint64_t)w->cycle_at) / (cycle - w->cycle));
	w->cycle = cycle;
	w->cycle_at = at;
	const int64_t length = w->length > 0 ? w->length : most / 16;
	return now + ft_more(ft_less(length, most), FT_NAP);
}

/* Sleeps until the futex word is not word any more, or it is time to look again.
 *
 * No wake is missed. The waiter: load the word, load the value, raise the lease,
 * compare the word and queue. The writer: publish, change the word, load the
 * lease, wake. The writer has a full fence between its two; futex(2) makes one
 * before it compares. So either the writer sees the lease, and wakes whoever is
 * queued under the kernel's lock, or the comparison sees the changed word. */
static inline int ft_wait_sleep(struct ft_waiter *w, uint32_t word) {
	const int64_t now = ft_now();
	if (now >= w->deadline) return FT_ERR_TIMEOUT;
	/* A period that is nonsense is held within what a lease is good for. */
	const int64_t period = ft_less(ft_more(ft_i64(w->r->base, FT_HDR_HEARTBEAT_PERIOD), FT_NAP), FT_LEASE);
	int64_t until;
	if (ft_wait_raise(w))
		until = ft_less(w->raised_at + FT_LEASE_RENEWAL, now + period); /* a writer that dies is noticed by looking */
	else
		until = ft_wait_pace(w, now, period);
	until = ft_less(until, w->deadline);
	switch (ft_futex_wait(w->r->base + FT_HDR_WAIT_WORD, word, until)) {
	case 0:
	case EAGAIN:
	case ETIMEDOUT:
	case EINTR: return FT_OK;
	case EFAULT: return FT_ERR_TRUNCATED;
	default: { /* there is no futex: sandboxes, other systems */
		const struct timespec nap = ft_timespec(ft_less(until - now, FT_NAP));
		(void)nanosleep(&nap, NULL);
		return FT_OK;
	}
	}
}

/* What is waited for: threshold, or, when since is not NULL, a change. */
struct ft_wait_for {
	uint64_t threshold;
	const ft_value *since;
	int looked, completion;
	uint64_t errors; /* at the call */
};

/* 1: it is there. 0: not yet. A result below 0 ends the waiting. */
static inline int ft_wait_met(const ft_reader *r, ft_handle h, struct ft_wait_for *f, const ft_value *v) {
	if (f->since)
		return v->packets != f->since->packets || v->bytes != f->since->bytes ||
		       (v->sampled_at == 0) != (f->since->sampled_at == 0);
	if (v->sampled_at != 0 && v->packets >= f->threshold) return 1;
	if (!f->looked) {
		ft_entry e;
		const int err = ft_get_entry(r, h.index, &e);
		if (err == FT_ERR_BUSY) return 0;
		if (err) return err == FT_ERR_NO_COUNTER ? FT_ERR_GONE : err;
		if (e.handle.generation != h.generation) return FT_ERR_GONE;
		f->looked = 1;
		f->completion = strcmp(e.kind, "completion") == 0;
		f->errors = v->bytes;
	}
	return f->completion && v->bytes != f->errors ? FT_ERR_COMPLETION : 0;
}

static inline int ft_wait_until(const ft_reader *r, ft_handle h, struct ft_wait_for *f, int64_t timeout_ns, ft_value *out) {
	struct ft_waiter w;
	ft_counter c;
	memset(&w, 0, sizeof w);
	memset(out, 0, sizeof *out);
	w.r = r;
	w.lease = -1;
	const int64_t start = ft_now();
	w.deadline = timeout_ns < 0 || timeout_ns > INT64_MAX - start ? INT64_MAX : start + timeout_ns;
	int err = ft_counter_open(r, h, &c);
	if (err == FT_ERR_BUSY) err = FT_OK; /* it is being published, and looked at again */
	while (!err) {
		/* The word first: a cycle that ends after this changes it. The value
		 * last: a writer that was dead before has published its last. */
		const uint32_t word = __atomic_load_n((const uint32_t *)(const void *)(r->base + FT_HDR_WAIT_WORD), __ATOMIC_ACQUIRE);
		const int over = ft_wait_over(r);
		err = ft_load(&c, out);
		if (!err) err = ft_wait_met(r, h, f, out);
		if (err == FT_ERR_BUSY) err = FT_OK;
		if (ft_whole(r)) err = FT_ERR_TRUNCATED;
		if (!err && over) err = FT_ERR_NOT_ALIVE;
		if (!err) err = ft_wait_sleep(&w, word);
	}
	if (w.lease >= 0) (void)close(w.lease);
	return err > 0 ? FT_OK : err;
}

FT_API int ft_wait(const ft_reader *r, ft_handle h, uint64_t threshold, int64_t timeout_ns, ft_value *out) {
	struct ft_wait_for f;
	memset(&f, 0, sizeof f);
	f.threshold = threshold;
	return ft_wait_until(r, h, &f, timeout_ns, out);
}

FT_API int ft_wait_change(const ft_reader *r, ft_handle h, const ft_value *since, int64_t timeout_ns, ft_value *out) {
	const ft_value before = *since; /* out may be the same place */
	struct ft_wait_for f;
	memset(&f, 0, sizeof f);
	f.since = &before;
	return ft_wait_until(r, h, &f, timeout_ns, out);
}

FT_API int ft_wakeable(const ft_reader *r) {
	int fd = -1;
	if (!ft_wait_watched(r)) return ft_whole(r) ? FT_ERR_TRUNCATED : FT_ERR_NO_WAKE;
	const int err = ft_lease_open(r, &fd);
	if (!err) (void)close(fd);
	return err;
}
#endif /* FLOWTALLY_SHARED */

#ifdef __cplusplus
}
#endif

#endif /* FLOWTALLY_WAIT_H */
