/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally_wait.h: sleeping until a counter of a mirror reaches a count.
 *
 *     ft_value v;
 *     int err = ft_wait(&r, h, 1000000, 5000000000, &v);   five seconds at most
 *     if (err == FT_ERR_TIMEOUT) printf("only %" PRIu64 "\n", v.packets);
 *
 * Promises (docs/mirror-format.md, section 9)
 *
 *   - No wake is missed, and none is too early. FT_OK means that the waiter saw the
 *     threshold reached, FT_ERR_TIMEOUT that the time is over.
 *   - A waiter writes nothing. It sleeps on a word of NAME.wait, which it maps read-only
 *     like the mirror. A process that may not read that file (its group may) sleeps for a
 *     poll cycle and looks again. Call ft_wakeable to know.
 *   - Signals do not end a wait. The death of the writer does: FT_ERR_NOT_ALIVE.
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
 * least threshold. *out is that value, or after an error the last one seen. A
 * counter that was never sampled reaches no threshold, not even 0. timeout_ns
 * below 0 means no time-out; 0 means not to sleep.
 *
 * FT_ERR_TIMEOUT. FT_ERR_COMPLETION: the counter is of kind "completion", and its
 * second value (completions in error) differs from the value at the call. If the
 * threshold is reached too, the result is FT_OK. FT_ERR_GONE: the counter was removed.
 * FT_ERR_NOT_ALIVE: the writer ended, or has given no sign of life for two heartbeat
 * periods. FT_ERR_STALE: the writer gave the file up (ft_follow). */
FT_API int ft_wait(const ft_reader *r, ft_handle h, uint64_t threshold, int64_t timeout_ns, ft_value *out);

/* Sleeps until the counter differs from since, a value that the caller read before. So
 * it misses no change between that read and the call. A new sample of equal numbers is
 * no change; the first sample is one. Results as above, except FT_ERR_COMPLETION. */
FT_API int ft_wait_change(const ft_reader *r, ft_handle h, const ft_value *since, int64_t timeout_ns, ft_value *out);

/* FT_OK: the writer wakes waiters on r. After any error they look once per poll cycle
 * instead, at most a thousand times a second. FT_ERR_NO_WAKE: the writer wakes no waiters,
 * or r was attached. Other errors: NAME.wait cannot be opened. */
FT_API int ft_wakeable(const ft_reader *r);

#ifndef FLOWTALLY_SHARED
/* ---- layout of NAME.wait --------------------------------------------------- */

enum {
	FT_WP_MAGIC = 0,
	FT_WP_VERSION = 8,
	FT_WP_BYTE_ORDER = 12,
	FT_WP_GENERATION = 16,
	FT_WP_WORD = 64,
	FT_WP_TURN = 68,
	FT_WP_SIZE = 4096,
	FT_WP_TURNS = 16
};

/* ---- the system's part --------------------------------------------------- */

enum {
	FT_FUTEX_WAIT_BITSET = 9,     /* until a time of CLOCK_MONOTONIC; shared between processes */
	FT_LONGEST_SLEEP = 500000000, /* ns: then a waiter checks whether the writer lives */
	FT_SHORTEST_NAP = 1000000     /* ns, where no writer wakes */
};

static inline int64_t ft_less(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t ft_more(int64_t a, int64_t b) { return a > b ? a : b; }

static inline struct timespec ft_timespec(int64_t ns) {
	struct timespec t;
	t.tv_sec = (time_t)(ns / 1000000000);
	t.tv_nsec = (long)(ns % 1000000000);
	return t;
}

/* Sleeps if the word is value, until a wake with one of bits comes, or the time until.
 * Returns 0, or the number of the error. */
static inline int ft_futex_wait(const void *word, uint32_t value, int64_t until, uint32_t bits) {
	const struct timespec t = ft_timespec(until > 0 ? until : 0);
#ifdef __linux__
	long number = SYS_futex;
#ifdef SYS_futex_time64
	if (sizeof t.tv_sec > sizeof(long)) number = SYS_futex_time64;
#endif
	return syscall(number, word, FT_FUTEX_WAIT_BITSET, value, &t, NULL, bits) == 0 ? 0 : errno;
#else
	(void)word, (void)value, (void)bits, (void)t;
	return ENOSYS;
#endif
}

/* A page of waiters, mapped read-only. base NULL: no page is mapped. */
struct ft_page {
	const unsigned char *base;
	struct ft_guarded *guard; /* NULL without ft_guard_sigbus */
};

static inline void ft_page_close(struct ft_page *p) {
	if (p->base == NULL) return;
	ft_guard_drop(p->guard);
	ft_unmap(p->base, FT_WP_SIZE);
	memset(p, 0, sizeof *p);
}

/* Maps NAME.wait. It must belong to the owner of the directory: only that user may put
 * it there. */
static inline int ft_page_open(const ft_reader *r, struct ft_page *p) {
	struct stat st, dir;
	int err = FT_OK;
	memset(p, 0, sizeof *p);
	if (r->path == NULL) return FT_ERR_NO_WAKE;
	char *name = ft_beside(r->path, ".wait");
	if (name == NULL) return FT_ERR_MEMORY;
	const int fd = open(name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0) {
		err = errno == ENOENT ? FT_ERR_NO_WAKE : ft_open_error();
	} else {
		char *slash = strrchr(name, '/');
		if (slash) slash[slash == name] = 0; /* of "/NAME.wait": "/" */
		if (fstat(fd, &st) != 0 || stat(slash ? name : ".", &dir) != 0)
			err = FT_ERR_SYSTEM;
		else if (!S_ISREG(st.st_mode))
			err = FT_ERR_NOT_FILE;
		else if (st.st_uid != dir.st_uid)
			err = FT_ERR_OWNER;
		else if (st.st_size < FT_WP_SIZE)
			err = FT_ERR_TRUNCATED;
	}
	free(name);
	void *at = err ? MAP_FAILED : mmap(NULL, FT_WP_SIZE, PROT_READ, MAP_SHARED, fd, 0);
	if (!err && at == MAP_FAILED) err = FT_ERR_SYSTEM;
	if (fd >= 0) {
		const int saved = errno;
		(void)close(fd);
		errno = saved;
	}
	if (err) return err;
	p->base = (const unsigned char *)at;
	err = ft_guard_take(p->base, FT_WP_SIZE, NULL, &p->guard);
	if (memcmp(p->base + FT_WP_MAGIC, "FLOWWAIT", 8) != 0 || ft_u32(p->base, FT_WP_VERSION) != 1 || ft_u32(p->base, FT_WP_BYTE_ORDER) != 0x01020304)
		err = FT_ERR_NO_WAKE;
	if (ft_guard_whole(p->guard)) err = FT_ERR_TRUNCATED;
	if (err) ft_page_close(p);
	return err;
}

/* ---- one waiter ---------------------------------------------------------- */

struct ft_waiter {
	const ft_reader *r;
	int64_t deadline;
	struct ft_page page;
	uint64_t page_of;  /* the page is of the writer of this generation */
	int64_t opened_at; /* the last try to open it; 0: never */
	uint32_t word, turn;
	int woken;         /* the writer wakes the sleepers on the page */
	uint64_t cycle;    /* the cycle that was seen last, to learn the length of a cycle that the header does not tell */
	int64_t cycle_at, length;
};

static inline uint32_t ft_wait_load(const struct ft_page *p, int offset) {
	return __atomic_load_n((const uint32_t *)(const void *)(p->base + offset), __ATOMIC_ACQUIRE);
}

/* Whether the mirror's writer wakes on the page. */
static inline int ft_wait_watched(const ft_reader *r, const struct ft_page *p) {
	return ft_acquire(ft_word(p->base, FT_WP_GENERATION)) == ft_acquire(ft_word(r->base, FT_HDR_GENERATION));
}

/* Loads the page's word, then its turn. The caller must load the mirror afterwards. */
static inline void ft_wait_look(struct ft_waiter *w) {
	w->woken = 0;
	if (w->page.base == NULL) return;
	w->word = ft_wait_load(&w->page, FT_WP_WORD); /* barrier wait-acquire */
	w->turn = ft_wait_load(&w->page, FT_WP_TURN); /* barrier turn-acquire */
	w->woken = ft_wait_watched(w->r, &w->page);
	if (ft_guard_whole(w->page.guard)) { /* its owner cut it short: look once per cycle */
		ft_page_close(&w->page);
		w->woken = 0;
	}
}

/* Opens the page for a waiter whom nobody wakes, if the mirror has another writer, or
 * otherwise once in FT_LONGEST_SLEEP. 1: w has a page, so look again. */
static inline int ft_wait_open(struct ft_waiter *w, int64_t now) {
	const uint64_t generation = ft_u64(w->r->base, FT_HDR_GENERATION);
	if (w->opened_at != 0 && w->page_of == generation && now - w->opened_at < FT_LONGEST_SLEEP) return 0;
	ft_page_close(&w->page);
	w->page_of = generation;
	w->opened_at = now;
	return ft_page_open(w->r, &w->page) == FT_OK;
}

/* Whether the writer ended, or gives no sign of life. */
static inline int ft_wait_over(const ft_reader *r) {
	const uint32_t state = __atomic_load_n((const uint32_t *)(const void *)(r->base + FT_HDR_STATE), __ATOMIC_ACQUIRE);
	const uint64_t age = (uint64_t)ft_now() - ft_u64(r->base, FT_HDR_HEARTBEAT);
	if (state != FT_BOOT && state != FT_RUN) return 1;
	return (int64_t)age >= 0 && age / 2 > ft_u64(r->base, FT_HDR_HEARTBEAT_PERIOD);
}

/* When to look again where no writer wakes: once per poll cycle. */
static inline int64_t ft_wait_pace(struct ft_waiter *w, int64_t now, int64_t most) {
	const uint64_t cycle = ft_acquire(ft_word(w->r->base, FT_HDR_CYCLE_DONE));
	const int64_t at = ft_i64(w->r->base, FT_HDR_CYCLE_DONE_AT);
	if (w->cycle != 0 && cycle > w->cycle && at > w->cycle_at && cycle - w->cycle < UINT32_MAX)
		w->length = (int64_t)(((uint64_t)at - (uint64_t)w->cycle_at) / (cycle - w->cycle));
	w->cycle = cycle;
	w->cycle_at = at;
	const int64_t told = ft_poll_period(w->r);
	const int64_t length = told > 0 ? told : w->length > 0 ? w->length : most / 16;
	return now + ft_more(ft_less(length, most), FT_SHORTEST_NAP);
}

static inline void ft_wait_nap(int64_t ns) {
	const struct timespec nap = ft_timespec(ft_more(ns, 0));
	(void)nanosleep(&nap, NULL);
}

/* Sleeps until the page's word is not the one that was loaded, or it is time to look
 * again.
 *
 * Why no wake is missed: the waiter loads the word, then the value; futex(2) compares the
 * word again and queues the waiter, under one lock. The writer publishes, changes the
 * word, then wakes. Suppose the waiter did not see a value. Then it was published after
 * the waiter loaded the word, and the word changes after that. Either the comparison
 * sees the change, or the waiter is queued before the wake.
 *
 * The bit is that of the turn, so that a writer wakes each of many sleepers once. */
static inline int ft_wait_sleep(struct ft_waiter *w) {
	const int64_t now = ft_now();
	if (now >= w->deadline) return FT_ERR_TIMEOUT;
	/* The period comes from the file, so bound it. */
	const int64_t period = ft_less(ft_more(ft_i64(w->r->base, FT_HDR_HEARTBEAT_PERIOD), FT_SHORTEST_NAP), FT_LONGEST_SLEEP);
	const int64_t next = ft_less(ft_wait_pace(w, now, period), w->deadline);
	if (!w->woken) {
		if (!ft_wait_open(w, now)) ft_wait_nap(next - now);
		return FT_OK; /* look again: a new page's word must be loaded before the value */
	}
	const int64_t until = ft_less(now + period, w->deadline); /* a dead writer wakes nobody, so look once a period */
	switch (ft_futex_wait(w->page.base + FT_WP_WORD, w->word, until, (uint32_t)1 << w->turn % FT_WP_TURNS)) {
	case 0:
	case EAGAIN:
	case ETIMEDOUT:
	case EINTR: return FT_OK;
	default: /* no futex (sandboxes, other systems), or the page was cut short (EFAULT) */
		ft_wait_nap(ft_less(until - now, FT_SHORTEST_NAP));
		return FT_OK;
	}
}

/* What ends a wait: the threshold, or a change if since is not NULL. */
struct ft_wait_for {
	uint64_t threshold;
	const ft_value *since;
	int looked, completion;
	uint64_t errors; /* at the call */
};

/* 1: reached. 0: not yet. Below 0: an error that ends the wait. */
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
	const int64_t start = ft_now();
	w.deadline = timeout_ns < 0 || timeout_ns > INT64_MAX - start ? INT64_MAX : start + timeout_ns;
	int err = ft_counter_open(r, h, &c);
	if (err == FT_ERR_BUSY) err = FT_OK; /* it is being published: the loop looks again */
	while (!err) {
		/* Load the word first: a cycle that ends after this changes it. Load the value
		 * last: a writer that was dead before has published its last one. */
		ft_wait_look(&w);
		const int over = ft_wait_over(r);
		err = ft_load(&c, out);
		if (!err) err = ft_wait_met(r, h, f, out);
		if (err == FT_ERR_BUSY) err = FT_OK;
		if (ft_whole(r)) err = FT_ERR_TRUNCATED;
		if (!err) err = ft_still(r);
		if (!err && over) err = FT_ERR_NOT_ALIVE;
		if (!err) err = ft_wait_sleep(&w);
	}
	ft_page_close(&w.page);
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
	struct ft_page p;
	int err = ft_page_open(r, &p);
	if (!err && !ft_wait_watched(r, &p)) err = ft_whole(r) ? FT_ERR_TRUNCATED : FT_ERR_NO_WAKE;
	ft_page_close(&p);
	return err;
}
#endif /* FLOWTALLY_SHARED */

#ifdef __cplusplus
}
#endif

#endif /* FLOWTALLY_WAIT_H */
