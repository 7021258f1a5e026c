/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally.h: a reader of flowtally's mirror in C11 and C++17, in one header.
 *
 * The mirror is a file on a tmpfs in which one writer shows the values of its
 * counters. A reader maps it read-only and reads without a system call, a lock
 * or an allocation. The format is specified in docs/mirror-format.md; this
 * header follows it and nothing else.
 *
 *     ft_reader r;
 *     ft_counter c;
 *     ft_handle h;
 *     ft_value v;
 *     int err = ft_open(&r, "/dev/shm/flowtally/default.mirror", NULL);
 *     if (!err) err = ft_lookup(&r, "web", &h);
 *     if (!err) err = ft_counter_open(&r, h, &c);
 *     if (!err) err = ft_load(&c, &v);
 *     if (err) fprintf(stderr, "web: %s\n", ft_strerror(err));
 *
 * Beside it: flowtally_wait.h sleeps until a counter has reached a count,
 * flowtally_device.h reads the words that a device writes by itself.
 *
 * What is promised
 *
 *   - A value is a consistent triple (packets, bytes, sampled-at) whatever the
 *     writer does, kill -9 included. sampled_at 0: never sampled, which is not 0.
 *   - Nothing that the writer does, or leaves undone, blocks or hangs a reader:
 *     every loop has a bound, and ends in FT_ERR_BUSY.
 *   - No content of the file leads a reader outside its mapping: offsets are
 *     checked once, by ft_open, against the size that fstat gives.
 *   - A handle names one counter for ever. A slot that was given to another
 *     counter is never read in its name: FT_ERR_GONE.
 *   - Every failure is a named code with a text; nothing is printed, no process
 *     is ended, no signal handler installed (but by ft_guard_sigbus).
 *
 * A writer never shortens a mirror, and only the owner of the directory could:
 * touching pages that are cut off raises SIGBUS, as for every mapped file. A
 * program that must survive even that calls ft_guard_sigbus once: what was cut
 * off then reads as never sampled, and ft_get_status, ft_lookup, ft_get_entry
 * and ft_snapshot_take answer FT_ERR_TRUNCATED from there on.
 *
 * Threads: an ft_reader may be used by any number of threads. An ft_counter, an
 * ft_cursor and an ft_snapshot each belong to one thread at a time. They borrow
 * from the reader: close them, or stop using them, before ft_close.
 *
 * Memory order: see "order" below; it does not lean on x86.
 *
 * POSIX and Linux: compile with -std=gnu11, or with -std=c11 and
 * -D_GNU_SOURCE (the header defines it itself when included first).
 */
#ifndef FLOWTALLY_H
#define FLOWTALLY_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* O_NOFOLLOW, O_CLOEXEC, clock_gettime, sigaction */
#endif

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- results ------------------------------------------------------------- */

enum ft_result {
	FT_OK = 0,
	FT_EMPTY = 1,          /* no record of the history is new */
	FT_ERR_SYSTEM = -1,    /* a system call failed; errno says why */
	FT_ERR_NO_FILE = -2,   /* there is no such file */
	FT_ERR_PERMISSION = -3,
	FT_ERR_LINK = -4,      /* the path is a symbolic link */
	FT_ERR_NOT_FILE = -5,  /* not a regular file */
	FT_ERR_OWNER = -6,     /* the file is of an owner that is not trusted */
	FT_ERR_TRUNCATED = -7, /* shorter than it says or once was */
	FT_ERR_NOT_READY = -8, /* the writer has not finished making it */
	FT_ERR_MAGIC = -9,     /* not a mirror */
	FT_ERR_BYTE_ORDER = -10,
	FT_ERR_VERSION = -11,  /* a format that this reader does not know */
	FT_ERR_FEATURE = -12,  /* needs features that this reader does not know */
	FT_ERR_HEADER = -13,   /* a field of the header has no valid value */
	FT_ERR_CHECKSUM = -14,
	FT_ERR_SECTIONS = -15, /* the section table does not fit the file */
	FT_ERR_NO_COUNTER = -16, /* no counter of that name or index */
	FT_ERR_GONE = -17,     /* the counter of this handle was removed */
	FT_ERR_BUSY = -18,     /* the writer changed it in each of 64 attempts */
	FT_ERR_CORRUPT = -19,  /* a word of the file breaks the format */
	FT_ERR_MEMORY = -20,
	FT_ERR_ARGUMENT = -21,
	FT_ERR_WORN = -22,     /* removals wore out the block: ft_load still tells */
	FT_ERR_NO_DEVICE = -23, /* no device writes this counter's words: flowtally_device.h */
	FT_ERR_TIMEOUT = -24,  /* from here on of flowtally_wait.h */
	FT_ERR_NOT_ALIVE = -25, /* nobody publishes any more */
	FT_ERR_COMPLETION = -26, /* a completion counter counted errors */
	FT_ERR_NO_WAKE = -27   /* the writer wakes nobody: waiters look */
};

/* ---- types --------------------------------------------------------------- */

typedef struct ft_value {
	uint64_t packets, bytes; /* of kind "completion": completions, and errors */
	int64_t sampled_at; /* ns of CLOCK_MONOTONIC; 0: never sampled */
} ft_value;

/* A handle names one counter of one file for ever. */
typedef struct ft_handle {
	uint32_t index, generation;
} ft_handle;

typedef struct ft_options {
	int trust_owner; /* accept files of owner too, beside root's and one's own */
	uid_t owner;
} ft_options;

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

/* One counter, resolved. Fields are private. */
typedef struct ft_counter {
	const uint64_t *seq;
	const uint64_t *current; /* the value in the copy (slot) that last made current */
	uint64_t last;           /* the sequence word of the last whole read */
	const uint64_t *values;  /* the value in copy (slot) 0 */
	size_t copy_words;       /* from there to the same in copy 1 */
	const uint64_t *identity;
	ft_handle handle;
} ft_counter;

enum ft_state { FT_BOOT = 1, FT_RUN = 2, FT_HALT = 3, FT_FAIL = 4, FT_SUPERSEDED = 5 };

typedef struct ft_status {
	uint32_t state;
	int alive;            /* BOOT or RUN, and a heartbeat within two periods */
	int64_t age;          /* ns since the last heartbeat */
	int64_t period;       /* ns between heartbeats */
	uint64_t generation;  /* another one: another writer took the file */
	uint64_t takeovers;
	int64_t started;      /* ns of CLOCK_MONOTONIC */
	uint64_t cycle_begun, cycle_done;
	int64_t cycle_done_at;
	uint64_t catalogue_changes; /* moved: look names up again */
	uint32_t counters, counters_used; /* block counters: capacity and in use */
	uint32_t records, records_used;   /* latency counters */
	uint64_t refused;     /* counters refused because the mirror was full */
	uint64_t successor;   /* generation of the file that took the name */
} ft_status;

/* A catalogue entry, copied out. Strings end with a NUL. labels is
 * "key=value", NUL, ..., and ends at an empty one. */
typedef struct ft_entry {
	ft_handle handle;
	char name[64], kind[16], unit[16], labels[256], text[288], source[64], byte_basis[16];
	int valid, stale, ambiguous, text_cut, source_cut;
	uint32_t width; /* bits of the source's own counters */
	int64_t added_at;
	uint64_t discontinuities;
} ft_entry;

/* A record of the history. */
typedef struct ft_record {
	uint64_t position;
	ft_handle handle;
	ft_value value;
	uint64_t cycle;
} ft_record;

typedef struct ft_cursor {
	const ft_reader *reader;
	uint64_t seen; /* position of the record seen last */
	uint64_t lost; /* records that were overwritten before they were read */
} ft_cursor;

/* Values of many counters. The label fields are public after ft_snapshot_take. */
typedef struct ft_snapshot {
	uint64_t cycle_min, cycle_max; /* equal: all of one poll cycle. 0: no value */
	int64_t oldest, newest;        /* sampled-at; newest - oldest is the skew */

	const ft_reader *reader;       /* private from here on */
	uint32_t *want_blocks, *want_records; /* sorted */
	uint32_t n_blocks, n_records;  /* wanted */
	uint32_t got_blocks, got_records;
	unsigned char *copies;         /* n_blocks copies */
	struct ft_snapshot_record *values;
} ft_snapshot;

struct ft_snapshot_record {
	ft_value value;
	uint64_t epoch;
};

/* ---- what a program calls ------------------------------------------------ */

/* Maps the mirror at path and checks it. options may be NULL. */
static inline int ft_open(ft_reader *r, const char *path, const ft_options *options);
/* The same for size bytes that are in memory already, 8-byte aligned. */
static inline int ft_attach(ft_reader *r, const void *base, size_t size);
static inline void ft_close(ft_reader *r);

/* Maps what is at the path of r now: after FT_SUPERSEDED, or when ft_moved says
 * so. On success counters, cursors and snapshots of r are worthless and names
 * have to be looked up again; on failure r is as it was. For a moment after
 * FT_SUPERSEDED the path still names the old file: call it again while the
 * status says so. */
static inline int ft_reopen(ft_reader *r, const ft_options *options);
/* 1 when the path of r names another file, or none, 0 when it does not. */
static inline int ft_moved(const ft_reader *r);

static inline int ft_get_status(const ft_reader *r, ft_status *out);
static inline const char *ft_state_name(uint32_t state);
static inline int64_t ft_now(void); /* ns of CLOCK_MONOTONIC; the vDSO's, no system call */

/* Names to handles: a scan of the catalogue. */
static inline int ft_lookup(const ft_reader *r, const char *name, ft_handle *out);
/* Entries by index, from 0 to ft_capacity - 1; FT_ERR_NO_COUNTER where none lives. */
static inline uint32_t ft_capacity(const ft_reader *r);
static inline int ft_get_entry(const ft_reader *r, uint32_t index, ft_entry *out);

/* One counter: resolved once, then read in nanoseconds. */
static inline int ft_counter_open(const ft_reader *r, ft_handle h, ft_counter *out);
static inline int ft_load(ft_counter *c, ft_value *out);

/* Many counters at once, those of handles, or all (handles NULL). */
static inline int ft_snapshot_open(ft_snapshot *s, const ft_reader *r, const ft_handle *handles, size_t n);
static inline int ft_snapshot_take(ft_snapshot *s);
static inline int ft_snapshot_get(const ft_snapshot *s, ft_handle h, ft_value *out);
static inline void ft_snapshot_close(ft_snapshot *s);

/* History: from now on, or from the oldest record that is there. */
static inline int ft_cursor_open(ft_cursor *c, const ft_reader *r, int oldest);
/* The next record, or FT_EMPTY. c->lost says what was missed so far. */
static inline int ft_cursor_next(ft_cursor *c, ft_record *out);

/* Makes this process survive a mirror that is cut short: installs a handler of
 * SIGBUS that puts zeros in the place of lost pages of mirrors opened
 * afterwards (up to 64 at a time), and hands every other SIGBUS on. Once. */
static inline int ft_guard_sigbus(void);

static inline const char *ft_strerror(int result);

/* ---- layout: docs/mirror-format.md --------------------------------------- */

enum {
	FT_HDR_VERSION = 8,
	FT_HDR_BYTE_ORDER = 12,
	FT_HDR_LENGTH = 16,
	FT_HDR_CLOCK = 20,
	FT_HDR_FILE_LENGTH = 24,
	FT_HDR_INCOMPAT = 44,
	FT_HDR_COUNTERS = 48,
	FT_HDR_RECORDS = 52,
	FT_HDR_HISTORY = 56,
	FT_HDR_BLOCK_LENGTH = 60,
	FT_HDR_SECTIONS = 64,
	FT_HDR_CHECKSUM = 312,
	FT_HDR_GENERATION = 512,
	FT_HDR_STARTED = 520,
	FT_HDR_HEARTBEAT_PERIOD = 536,
	FT_HDR_TAKEOVERS = 552,
	FT_HDR_HEARTBEAT = 640,
	FT_HDR_STATE = 648,
	FT_HDR_CYCLE_BEGUN = 768,
	FT_HDR_CYCLE_DONE = 776,
	FT_HDR_CYCLE_DONE_AT = 784,
	FT_HDR_CATALOGUE_CHANGES = 896,
	FT_HDR_COUNTERS_USED = 904,
	FT_HDR_RECORDS_USED = 908,
	FT_HDR_BLOCKS_HIGH = 912,
	FT_HDR_RECORDS_HIGH = 916,
	FT_HDR_REFUSED = 920,
	FT_HDR_HISTORY_INTENT = 1024,
	FT_HDR_HISTORY_TAIL = 1032,
	FT_HDR_HISTORY_BASE = 1040,
	FT_HDR_WAIT_WORD = 1152,
	FT_HDR_WAIT_GENERATION = 1160,
	FT_HDR_SUCCESSOR = 1280,
	FT_HDR_DEVICE_GENERATION = 1408,
	FT_HEADER_SIZE = 4096,

	FT_SEC_OFFSET = 0,
	FT_SEC_LENGTH = 8,
	FT_SEC_STRIDE = 16,
	FT_SEC_COUNT = 20,
	FT_SEC_SIZE = 32,
	FT_SEC_ALIGN = 4096,

	FT_ENT_IDENTITY = 0,
	FT_ENT_ADDED_AT = 16,
	FT_ENT_BORN = 24,
	FT_ENT_FLAGS = 32,
	FT_ENT_NAME = 64,
	FT_ENT_KIND = 128,
	FT_ENT_UNIT = 144,
	FT_ENT_LABELS = 160,
	FT_ENT_TEXT = 416,
	FT_ENT_SEQ = 704,
	FT_ENT_SLOTS = 768,
	FT_ENT_SIZE = 1024,
	FT_ENT_LIVE = 2,

	FT_SLOT_FLAGS = 0,
	FT_SLOT_DISCONTINUITIES = 32,
	FT_SLOT_WIDTH = 40,
	FT_SLOT_DEVICE = 44,
	FT_SLOT_BASIS = 48,
	FT_SLOT_SOURCE = 64,
	FT_SLOT_SIZE = 128,

	FT_BLK_SEQ = 0,
	FT_BLK_COPIES = 64,
	FT_BLK_INTENT = 3264,
	FT_BLK_SIZE = 3328,
	FT_BLK_LEN = 64,

	FT_CPY_CYCLE = 0,
	FT_CPY_OLDEST = 8,
	FT_CPY_NEWEST = 16,
	FT_CPY_LIVE = 24,
	FT_CPY_EPOCH = 32,
	FT_CPY_VALUES = 64,
	FT_CPY_SIZE = 1600,

	FT_VAL_PACKETS = 0,
	FT_VAL_BYTES = 8,
	FT_VAL_SAMPLED_AT = 16,
	FT_VAL_SIZE = 24,

	FT_REC_SEQ = 0,
	FT_REC_SLOTS = 8,
	FT_REC_CYCLES = 56,
	FT_REC_SIZE = 64,

	FT_HIS_POSITION = 0,
	FT_HIS_INDEX = 8,
	FT_HIS_GENERATION = 12,
	FT_HIS_TIME = 16,
	FT_HIS_PACKETS = 24,
	FT_HIS_BYTES = 32,
	FT_HIS_CYCLE = 40,
	FT_HIS_KIND = 48,
	FT_HIS_SIZE = 64,

	FT_MOST_COUNTERS = 1 << 24, /* and as many records */
	FT_MOST_HISTORY = 1 << 28,

	FT_EPOCH_SHIFT = 40,
	FT_EPOCH_MAX = (1 << 24) - 1,
	FT_ATTEMPTS = 64
};

/* ---- order ---------------------------------------------------------------
 *
 * The compiler's builtins serve C and C++ alike. One shape is all there is:
 *
 *   s = ft_acquire(seq); words...; ft_fence(); seq again, relaxed.
 *
 * (ft_load has done its acquire in an earlier read.) The acquire keeps the words
 * from being loaded before s: they are of publish s or later. A writer that
 * begins to overwrite them has stored a newer sequence word (or the intent)
 * before, with a store fence between. The load fence keeps
 * the second load of seq behind the words: if a word came from an overwrite, the
 * second load sees the newer sequence word and differs from s. On arm64 that
 * takes LDAR and DMB ISHLD: a load-acquire for the second load would not do,
 * because it holds back what follows it, not what precedes it. On amd64, where
 * loads stay in order, neither costs an instruction. The words themselves are
 * loaded atomically (relaxed), so that no compiler splits or repeats a load;
 * whole copies are taken by memcpy, which is in order with the fence too, and
 * torn ones are thrown away unseen. */

static inline uint64_t ft_acquire(const uint64_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static inline uint64_t ft_relaxed(const uint64_t *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
static inline void ft_fence(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }

/* Words of the file. Every offset that is asked for is a multiple of the size
 * of the word, and the base of the mapping is page-aligned (ft_attach checks). */
static inline const uint64_t *ft_word(const unsigned char *p, size_t offset) {
	return (const uint64_t *)(const void *)(p + offset);
}
static inline uint64_t ft_u64(const unsigned char *p, size_t offset) { return ft_relaxed(ft_word(p, offset)); }
static inline int64_t ft_i64(const unsigned char *p, size_t offset) { return (int64_t)ft_u64(p, offset); }
static inline uint32_t ft_u32(const unsigned char *p, size_t offset) {
	return __atomic_load_n((const uint32_t *)(const void *)(p + offset), __ATOMIC_RELAXED);
}

/* Copies a string field of size bytes; ends it whatever the file holds. */
static inline void ft_string(char *to, const unsigned char *from, size_t size) {
	memcpy(to, from, size);
	to[size - 1] = 0;
}

/* ---- SIGBUS -------------------------------------------------------------- */

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

static inline int ft_guard_sigbus(void) {
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
static inline int ft_whole(const ft_reader *r) { return ft_guard_whole(r->guard); }

/* ---- attaching ----------------------------------------------------------- */

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

/* FNV-1a of the bytes before a header's checksum. */
static inline uint64_t ft_checksum(const unsigned char *p, size_t n) {
	uint64_t sum = 0xcbf29ce484222325u;
	for (size_t i = 0; i < n; i++) sum = (sum ^ p[i]) * 0x100000001b3u;
	return sum;
}

static inline int ft_attach(ft_reader *r, const void *base, size_t size) {
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

static inline int ft_open_error(void) {
	switch (errno) {
	case ENOENT:
	case ENOTDIR: return FT_ERR_NO_FILE;
	case EACCES:
	case EPERM: return FT_ERR_PERMISSION;
	case ELOOP: return FT_ERR_LINK;
	default: return FT_ERR_SYSTEM;
	}
}

/* The name of a file that goes with the mirror at path: NAME and suffix for
 * NAME.mirror. To be freed; NULL: there is no memory. */
static inline char *ft_beside(const char *path, const char *suffix) {
	static const char mirror[] = ".mirror";
	const size_t length = strlen(path), cut = sizeof mirror - 1, room = strlen(suffix) + 1;
	const size_t stem = length >= cut && strcmp(path + length - cut, mirror) == 0 ? length - cut : length;
	char *name = (char *)malloc(stem + room);
	if (name == NULL) return NULL;
	memcpy(name, path, stem);
	memcpy(name + stem, suffix, room);
	return name;
}

/* Maps a file that is owned by somebody trusted and holds a header's page. */
static inline int ft_map(const char *path, const ft_options *options, int *fd, const unsigned char **base, size_t *size) {
	/* Not blocking: a fifo in the place of the file must not hang us. */
	*fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (*fd < 0) return ft_open_error();
	struct stat st;
	int err = FT_OK;
	if (fstat(*fd, &st) != 0)
		err = FT_ERR_SYSTEM;
	else if (!S_ISREG(st.st_mode))
		err = FT_ERR_NOT_FILE;
	else if (st.st_uid != 0 && st.st_uid != geteuid() && !(options && options->trust_owner && st.st_uid == options->owner))
		err = FT_ERR_OWNER;
	else if (st.st_size < FT_HEADER_SIZE)
		err = FT_ERR_TRUNCATED;
	else if ((uint64_t)st.st_size > SIZE_MAX)
		err = FT_ERR_MEMORY;
	void *at = err ? MAP_FAILED : mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, *fd, 0);
	if (!err && at == MAP_FAILED) err = FT_ERR_SYSTEM;
	if (err) {
		const int saved = errno;
		(void)close(*fd);
		errno = saved;
		return err;
	}
	*base = (const unsigned char *)at;
	*size = (size_t)st.st_size;
	return FT_OK;
}

static inline void ft_unmap(int fd, const unsigned char *base, size_t size) {
	const int saved = errno;
	(void)munmap((void *)(uintptr_t)base, size);
	(void)close(fd);
	errno = saved;
}

static inline int ft_open(ft_reader *r, const char *path, const ft_options *options) {
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

static inline void ft_close(ft_reader *r) {
	ft_guard_drop(r->guard);
	if (r->fd >= 0) ft_unmap(r->fd, r->base, r->size);
	free(r->path);
	memset(r, 0, sizeof *r);
	r->fd = r->guard = -1;
}

static inline int ft_reopen(ft_reader *r, const ft_options *options) {
	ft_reader next;
	if (r->path == NULL) return FT_ERR_ARGUMENT;
	const int err = ft_open(&next, r->path, options);
	if (err) return err;
	ft_close(r);
	*r = next;
	return FT_OK;
}

static inline int ft_moved(const ft_reader *r) {
	struct stat here, there;
	if (r->path == NULL) return 0;
	if (fstat(r->fd, &here) != 0 || lstat(r->path, &there) != 0) return 1;
	return here.st_ino != there.st_ino || here.st_dev != there.st_dev;
}

/* ---- status -------------------------------------------------------------- */

static inline int64_t ft_now(void) {
	struct timespec t;
	(void)clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail: the clock exists and t is ours */
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int ft_get_status(const ft_reader *r, ft_status *out) {
	const unsigned char *p = r->base;
	/* Differences of words of the file are taken as unsigned: garbage must not overflow. */
	const uint64_t age = (uint64_t)ft_now() - ft_u64(p, FT_HDR_HEARTBEAT);
	const uint64_t period = ft_u64(p, FT_HDR_HEARTBEAT_PERIOD);
	out->state = ft_u32(p, FT_HDR_STATE);
	out->age = (int64_t)age;
	out->period = (int64_t)period;
	/* A heartbeat that is newer than our reading of the clock is alive: its age is below zero. */
	out->alive = (out->state == FT_BOOT || out->state == FT_RUN) && (out->age < 0 || age / 2 <= period);
	out->generation = ft_u64(p, FT_HDR_GENERATION);
	out->takeovers = ft_u64(p, FT_HDR_TAKEOVERS);
	out->started = ft_i64(p, FT_HDR_STARTED);
	out->cycle_done = ft_acquire(ft_word(p, FT_HDR_CYCLE_DONE));
	out->cycle_begun = ft_u64(p, FT_HDR_CYCLE_BEGUN);
	out->cycle_done_at = ft_i64(p, FT_HDR_CYCLE_DONE_AT);
	out->catalogue_changes = ft_acquire(ft_word(p, FT_HDR_CATALOGUE_CHANGES));
	out->counters = r->counters;
	out->counters_used = ft_u32(p, FT_HDR_COUNTERS_USED);
	out->records = r->record_count;
	out->records_used = ft_u32(p, FT_HDR_RECORDS_USED);
	out->refused = ft_u64(p, FT_HDR_REFUSED);
	out->successor = ft_u64(p, FT_HDR_SUCCESSOR);
	return ft_whole(r);
}

static inline const char *ft_state_name(uint32_t state) {
	switch (state) {
	case FT_BOOT: return "boot";
	case FT_RUN: return "run";
	case FT_HALT: return "halt";
	case FT_FAIL: return "fail";
	case FT_SUPERSEDED: return "superseded";
	default: return "invalid";
	}
}

/* ---- catalogue ----------------------------------------------------------- */

static inline uint32_t ft_capacity(const ft_reader *r) { return r->counters + r->record_count; }

static inline const unsigned char *ft_entry_at(const ft_reader *r, uint32_t index) {
	return r->catalogue + (size_t)index * FT_ENT_SIZE;
}

static inline uint64_t ft_live_identity(uint32_t generation) { return (uint64_t)FT_ENT_LIVE << 32 | generation; }

/* Copies the slot of an entry that is current. */
static inline int ft_get_slot(const unsigned char *entry, unsigned char *slot) {
	const uint64_t *seq = ft_word(entry, FT_ENT_SEQ);
	for (int i = 0; i < FT_ATTEMPTS; i++) {
		const uint64_t s = ft_acquire(seq);
		memcpy(slot, entry + FT_ENT_SLOTS + (s & 1) * FT_SLOT_SIZE, FT_SLOT_SIZE);
		ft_fence();
		if (ft_relaxed(seq) == s) return FT_OK;
	}
	return FT_ERR_BUSY;
}

static inline int ft_get_entry(const ft_reader *r, uint32_t index, ft_entry *out) {
	if (index >= ft_capacity(r)) return FT_ERR_NO_COUNTER;
	const unsigned char *e = ft_entry_at(r, index);
	uint64_t words[FT_SLOT_SIZE / 8];
	unsigned char *slot = (unsigned char *)words;
	for (int i = 0; i < FT_ATTEMPTS; i++) {
		const uint64_t identity = ft_acquire(ft_word(e, FT_ENT_IDENTITY));
		if (identity >> 32 != FT_ENT_LIVE) return FT_ERR_NO_COUNTER;
		ft_string(out->name, e + FT_ENT_NAME, sizeof out->name);
		ft_string(out->kind, e + FT_ENT_KIND, sizeof out->kind);
		ft_string(out->unit, e + FT_ENT_UNIT, sizeof out->unit);
		ft_string(out->labels, e + FT_ENT_LABELS, sizeof out->labels);
		out->labels[sizeof out->labels - 2] = 0; /* the list, too, ends inside the array */
		ft_string(out->text, e + FT_ENT_TEXT, sizeof out->text);
		out->text_cut = ft_u32(e, FT_ENT_FLAGS) & 1;
		out->added_at = ft_i64(e, FT_ENT_ADDED_AT);
		const int err = ft_get_slot(e, slot);
		if (err) return err;
		ft_fence();
		if (ft_relaxed(ft_word(e, FT_ENT_IDENTITY)) != identity) continue;

		const uint64_t flags = ft_u64(slot, FT_SLOT_FLAGS);
		out->valid = (int)(flags & 1);
		out->stale = (int)(flags >> 1 & 1);
		out->ambiguous = (int)(flags >> 2 & 1);
		out->source_cut = (int)(flags >> 3 & 1);
		out->discontinuities = ft_u64(slot, FT_SLOT_DISCONTINUITIES);
		memcpy(&out->width, slot + FT_SLOT_WIDTH, sizeof out->width);
		if (out->width == 0) out->width = 64;
		ft_string(out->byte_basis, slot + FT_SLOT_BASIS, sizeof out->byte_basis);
		ft_string(out->source, slot + FT_SLOT_SOURCE, sizeof out->source);
		if (out->unit[0] == 0) memcpy(out->unit, "packets", 8);
		out->handle.index = index;
		out->handle.generation = (uint32_t)identity;
		return ft_whole(r);
	}
	return FT_ERR_BUSY;
}

/* How far the sections have ever been used; never more than what is there. */
static inline uint32_t ft_blocks_high(const ft_reader *r) {
	const uint32_t high = ft_u32(r->base, FT_HDR_BLOCKS_HIGH), most = r->counters / FT_BLK_LEN;
	return high < most ? high : most;
}
static inline uint32_t ft_records_high(const ft_reader *r) {
	const uint32_t high = ft_u32(r->base, FT_HDR_RECORDS_HIGH);
	return high < r->record_count ? high : r->record_count;
}

static inline int ft_lookup_range(const ft_reader *r, const char name[64], uint32_t from, uint32_t to, ft_handle *out) {
	for (uint32_t index = from; index < to; index++) {
		const unsigned char *e = ft_entry_at(r, index);
		const uint64_t identity = ft_acquire(ft_word(e, FT_ENT_IDENTITY));
		if (identity >> 32 != FT_ENT_LIVE || memcmp(e + FT_ENT_NAME, name, 64) != 0) continue;
		ft_fence();
		/* Changed meanwhile: the entry was freed, and the name with it. */
		if (ft_relaxed(ft_word(e, FT_ENT_IDENTITY)) != identity) continue;
		out->index = index;
		out->generation = (uint32_t)identity;
		return FT_OK;
	}
	return FT_ERR_NO_COUNTER;
}

static inline int ft_lookup(const ft_reader *r, const char *name, ft_handle *out) {
	char padded[64] = {0};
	const size_t length = strlen(name);
	int err = ft_whole(r);
	if (err) return err;
	if (length == 0 || length >= sizeof padded) return FT_ERR_NO_COUNTER;
	memcpy(padded, name, length);
	err = ft_lookup_range(r, padded, 0, ft_blocks_high(r) * FT_BLK_LEN, out);
	if (err == FT_ERR_NO_COUNTER) err = ft_lookup_range(r, padded, r->counters, r->counters + ft_records_high(r), out);
	return ft_whole(r) ? FT_ERR_TRUNCATED : err;
}

/* ---- one counter --------------------------------------------------------- */

/* Loads the three words of a value, each on its own. */
static inline ft_value ft_triple(const uint64_t *p) {
	ft_value v;
	v.packets = ft_relaxed(p + FT_VAL_PACKETS / 8);
	v.bytes = ft_relaxed(p + FT_VAL_BYTES / 8);
	v.sampled_at = (int64_t)ft_relaxed(p + FT_VAL_SAMPLED_AT / 8);
	return v;
}

/* The plain form: takes nothing for granted, and keeps what ft_load needs. */
__attribute__((noinline, unused)) static int ft_load_plain(ft_counter *c, ft_value *out) {
	for (int i = 0; i < FT_ATTEMPTS; i++) {
		const uint64_t s = ft_acquire(c->seq);
		const uint64_t *value = c->values + (s & 1) * c->copy_words;
		/* Before the second load of seq, and after the first: RETIRED is stored
		 * before the publish that raises the epoch. */
		if (ft_acquire(c->identity) != ft_live_identity(c->handle.generation)) return FT_ERR_GONE;
		const ft_value v = ft_triple(value);
		ft_fence();
		if (ft_relaxed(c->seq) != s) continue;
		c->current = value;
		/* A saturated epoch no longer tells a removal: 0 is kept for the word,
		 * which does not come back then, and every read takes the plain form. */
		c->last = s >> FT_EPOCH_SHIFT == FT_EPOCH_MAX ? 0 : s;
		*out = v;
		return FT_OK;
	}
	return FT_ERR_BUSY;
}

static inline int ft_counter_open(const ft_reader *r, ft_handle h, ft_counter *out) {
	const unsigned char *p;
	ft_value first;
	if (h.index >= ft_capacity(r)) return FT_ERR_NO_COUNTER;
	if (h.index < r->counters) {
		p = r->blocks + (size_t)(h.index / FT_BLK_LEN) * FT_BLK_SIZE;
		out->values = ft_word(p, FT_BLK_COPIES + FT_CPY_VALUES + (size_t)(h.index % FT_BLK_LEN) * FT_VAL_SIZE);
		out->copy_words = FT_CPY_SIZE / 8;
	} else {
		p = r->records + (size_t)(h.index - r->counters) * FT_REC_SIZE;
		out->values = ft_word(p, FT_REC_SLOTS);
		out->copy_words = FT_VAL_SIZE / 8;
	}
	out->seq = ft_word(p, 0); /* of a block and of a record alike */
	out->current = out->values;
	out->last = 0;
	out->identity = ft_word(ft_entry_at(r, h.index), FT_ENT_IDENTITY);
	out->handle = h;
	return ft_load_plain(out, &first);
}

static inline int ft_load(ft_counter *c, ft_value *out) {
	/* The quick form. The words are of c->last or later, because c->last was
	 * loaded with acquire, once. The sequence word has not moved since: nobody
	 * has begun to write into this copy, and no counter beside it was removed. */
	const ft_value v = ft_triple(c->current);
	ft_fence();
	if (__builtin_expect(ft_relaxed(c->seq) == c->last, 1)) {
		*out = v;
		return FT_OK;
	}
	return ft_load_plain(c, out);
}

/* ---- many counters ------------------------------------------------------- */

static inline int ft_compare_u32(const void *a, const void *b) {
	uint32_t x, y;
	memcpy(&x, a, sizeof x);
	memcpy(&y, b, sizeof y);
	return (x > y) - (x < y);
}

/* Sorts list and drops what stands in it twice; returns what is left. */
static inline uint32_t ft_unique(uint32_t *list, uint32_t n) {
	uint32_t kept = 0;
	if (n == 0) return 0;
	qsort(list, n, sizeof *list, ft_compare_u32);
	for (uint32_t i = 0; i < n; i++)
		if (i == 0 || list[i] != list[kept - 1]) list[kept++] = list[i];
	return kept;
}

/* Where number stands in the first n of a sorted list, or n. */
static inline uint32_t ft_find(const uint32_t *list, uint32_t n, uint32_t number) {
	uint32_t low = 0, high = n;
	while (low < high) {
		const uint32_t middle = low + (high - low) / 2;
		if (list[middle] < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low < n && list[low] == number ? low : n;
}

static inline void ft_snapshot_close(ft_snapshot *s) {
	free(s->want_blocks);
	free(s->want_records);
	free(s->copies);
	free(s->values);
	memset(s, 0, sizeof *s);
}

static inline int ft_snapshot_open(ft_snapshot *s, const ft_reader *r, const ft_handle *handles, size_t n) {
	memset(s, 0, sizeof *s);
	const uint32_t blocks = r->counters / FT_BLK_LEN, records = r->record_count;
	/* As many as could be asked for, and never nothing: malloc(0) may answer NULL. */
	const size_t most_blocks = handles ? n : blocks, most_records = handles ? n : records;
	if (most_blocks > UINT32_MAX) return FT_ERR_ARGUMENT;
	s->reader = r;
	s->want_blocks = (uint32_t *)calloc(most_blocks + 1, sizeof *s->want_blocks);
	s->want_records = (uint32_t *)calloc(most_records + 1, sizeof *s->want_records);
	if (s->want_blocks == NULL || s->want_records == NULL) {
		ft_snapshot_close(s);
		return FT_ERR_MEMORY;
	}
	if (handles == NULL) {
		for (; s->n_blocks < blocks; s->n_blocks++) s->want_blocks[s->n_blocks] = s->n_blocks;
		for (; s->n_records < records; s->n_records++) s->want_records[s->n_records] = s->n_records;
	}
	for (size_t i = 0; handles && i < n; i++) {
		const uint32_t index = handles[i].index;
		if (index >= ft_capacity(r)) {
			ft_snapshot_close(s);
			return FT_ERR_NO_COUNTER;
		}
		if (index < r->counters)
			s->want_blocks[s->n_blocks++] = index / FT_BLK_LEN;
		else
			s->want_records[s->n_records++] = index - r->counters;
	}
	s->n_blocks = ft_unique(s->want_blocks, s->n_blocks);
	s->n_records = ft_unique(s->want_records, s->n_records);
	void *copies = NULL;
	if (posix_memalign(&copies, 64, (size_t)s->n_blocks * FT_CPY_SIZE + 64) != 0) copies = NULL;
	s->copies = (unsigned char *)copies;
	s->values = (struct ft_snapshot_record *)calloc((size_t)s->n_records + 1, sizeof *s->values);
	if (s->copies == NULL || s->values == NULL) {
		ft_snapshot_close(s);
		return FT_ERR_MEMORY;
	}
	return FT_OK;
}

/* Copies the copy of a block that belongs to cycle k, or the current one. */
static inline int ft_snapshot_block(const unsigned char *block, uint64_t k, unsigned char *to) {
	const uint64_t *seq = ft_word(block, FT_BLK_SEQ), *intent = ft_word(block, FT_BLK_INTENT);
	for (int i = 0; i < FT_ATTEMPTS; i++) {
		const uint64_t s = ft_acquire(seq);
		const unsigned char *current = block + FT_BLK_COPIES + (s & 1) * FT_CPY_SIZE;
		const unsigned char *other = block + FT_BLK_COPIES + (~s & 1) * FT_CPY_SIZE;
		if (ft_u64(current, FT_CPY_CYCLE) > k && ft_u64(other, FT_CPY_CYCLE) == k) {
			memcpy(to, other, FT_CPY_SIZE);
			ft_fence();
			/* No publish was begun since s: nobody wrote into the other copy. */
			if (ft_relaxed(intent) == s) return FT_OK;
			/* One was: the other copy is lost for good. The current one is not. */
		}
		memcpy(to, current, FT_CPY_SIZE);
		ft_fence();
		if (ft_relaxed(seq) == s) return FT_OK;
	}
	return FT_ERR_BUSY;
}

/* Reads a record, and the cycle in which it was published. */
static inline int ft_snapshot_record_take(const ft_reader *r, uint32_t number, struct ft_snapshot_record *to, uint64_t *cycle) {
	const unsigned char *p = r->records + (size_t)number * FT_REC_SIZE;
	for (int i = 0; i < FT_ATTEMPTS; i++) {
		const uint64_t s = ft_acquire(ft_word(p, FT_REC_SEQ));
		const unsigned char *slot = p + FT_REC_SLOTS + (s & 1) * FT_VAL_SIZE;
		to->value = ft_triple(ft_word(slot, 0));
		const uint32_t low = ft_u32(p, FT_REC_CYCLES + (s & 1) * 4);
		ft_fence();
		if (ft_relaxed(ft_word(p, FT_REC_SEQ)) != s) continue;
		to->epoch = s >> FT_EPOCH_SHIFT;
		/* The largest number up to cycle_begun with that low half. Loaded after
		 * the record, so not older than the cycle in which it was published. */
		const uint64_t begun = ft_u64(r->base, FT_HDR_CYCLE_BEGUN);
		*cycle = begun - (uint32_t)((uint32_t)begun - low);
		return FT_OK;
	}
	return FT_ERR_BUSY;
}

static inline void ft_snapshot_label(ft_snapshot *s, uint64_t cycle, int64_t oldest, int64_t newest) {
	if (newest == 0) return; /* holds no sampled value */
	if (s->newest == 0 || cycle < s->cycle_min) s->cycle_min = cycle;
	if (s->newest == 0 || cycle > s->cycle_max) s->cycle_max = cycle;
	if (s->newest == 0 || oldest < s->oldest) s->oldest = oldest;
	if (s->newest == 0 || newest > s->newest) s->newest = newest;
}

static inline int ft_snapshot_take(ft_snapshot *s) {
	const ft_reader *r = s->reader;
	const uint64_t k = ft_acquire(ft_word(r->base, FT_HDR_CYCLE_DONE));
	const uint32_t blocks_high = ft_blocks_high(r), records_high = ft_records_high(r);
	s->cycle_min = s->cycle_max = 0;
	s->oldest = s->newest = 0;
	/* Sorted: what comes after one that was never used was not either. */
	for (s->got_blocks = 0; s->got_blocks < s->n_blocks; s->got_blocks++) {
		const uint32_t number = s->want_blocks[s->got_blocks];
		if (number >= blocks_high) break;
		unsigned char *to = s->copies + (size_t)s->got_blocks * FT_CPY_SIZE;
		const int err = ft_snapshot_block(r->blocks + (size_t)number * FT_BLK_SIZE, k, to);
		if (err) return err;
		ft_snapshot_label(s, ft_u64(to, FT_CPY_CYCLE), ft_i64(to, FT_CPY_OLDEST), ft_i64(to, FT_CPY_NEWEST));
	}
	for (s->got_records = 0; s->got_records < s->n_records; s->got_records++) {
		const uint32_t number = s->want_records[s->got_records];
		if (number >= records_high) break;
		struct ft_snapshot_record *to = &s->values[s->got_records];
		uint64_t cycle = 0;
		const int err = ft_snapshot_record_take(r, number, to, &cycle);
		if (err) return err;
		ft_snapshot_label(s, cycle, to->value.sampled_at, to->value.sampled_at);
	}
	return ft_whole(r);
}

/* The value that the snapshot holds for h; absent (sampled_at 0) when the
 * counter was added, or first published, only later. FT_ERR_GONE: the counter
 * was removed, before the snapshot or since. FT_ERR_NO_COUNTER: it is not among
 * the handles that the snapshot was opened for. */
static inline int ft_snapshot_get(const ft_snapshot *s, ft_handle h, ft_value *out) {
	const ft_reader *r = s->reader;
	memset(out, 0, sizeof *out);
	if (h.index >= ft_capacity(r)) return FT_ERR_NO_COUNTER;
	const unsigned char *e = ft_entry_at(r, h.index);
	/* LIVE under h's generation, which never comes back: born is of h. */
	if (ft_acquire(ft_word(e, FT_ENT_IDENTITY)) != ft_live_identity(h.generation)) return FT_ERR_GONE;
	const uint64_t born = ft_u64(e, FT_ENT_BORN);
	ft_fence();
	if (ft_relaxed(ft_word(e, FT_ENT_IDENTITY)) != ft_live_identity(h.generation)) return FT_ERR_GONE;

	ft_value v;
	uint64_t epoch;
	if (h.index < r->counters) {
		const uint32_t at = ft_find(s->want_blocks, s->n_blocks, h.index / FT_BLK_LEN);
		if (at == s->n_blocks) return FT_ERR_NO_COUNTER;
		if (at >= s->got_blocks) return FT_OK;
		const unsigned char *copy = s->copies + (size_t)at * FT_CPY_SIZE;
		const size_t row = h.index % FT_BLK_LEN;
		if ((ft_u64(copy, FT_CPY_LIVE) >> row & 1) == 0) return FT_OK;
		epoch = ft_u64(copy, FT_CPY_EPOCH);
		v = ft_triple(ft_word(copy, FT_CPY_VALUES + row * FT_VAL_SIZE));
	} else {
		const uint32_t at = ft_find(s->want_records, s->n_records, h.index - r->counters);
		if (at == s->n_records) return FT_ERR_NO_COUNTER;
		if (at >= s->got_records) return FT_OK;
		epoch = s->values[at].epoch;
		v = s->values[at].value;
	}
	if (epoch >= FT_EPOCH_MAX) return FT_ERR_WORN;
	/* Else the slot was freed, and given to h, since the copy was made. */
	if (born <= epoch) *out = v;
	return FT_OK;
}

/* ---- history ------------------------------------------------------------- */

static inline int ft_cursor_open(ft_cursor *c, const ft_reader *r, int oldest) {
	c->reader = r;
	c->lost = 0;
	c->seen = ft_acquire(ft_word(r->base, FT_HDR_HISTORY_TAIL));
	if (oldest) {
		const uint64_t intent = ft_acquire(ft_word(r->base, FT_HDR_HISTORY_INTENT));
		const uint64_t base = ft_u64(r->base, FT_HDR_HISTORY_BASE);
		c->seen = intent > r->history_len ? intent - r->history_len : 0;
		if (c->seen < base) c->seen = base; /* what was before was never in this file */
	}
	return ft_whole(r);
}

/* Counts what was overwritten before it was read and moves behind it. */
static inline int ft_cursor_lapped(ft_cursor *c, uint64_t intent) {
	const uint64_t length = c->reader->history_len;
	if (intent <= length || intent - length <= c->seen) return 0;
	c->lost += intent - length - c->seen;
	c->seen = intent - length;
	return 1;
}

static inline int ft_cursor_next(ft_cursor *c, ft_record *out) {
	const ft_reader *r = c->reader;
	const uint64_t *tail = ft_word(r->base, FT_HDR_HISTORY_TAIL), *intent = ft_word(r->base, FT_HDR_HISTORY_INTENT);
	if (r->history_len == 0) return FT_EMPTY;
	for (int attempts = 0; attempts < FT_ATTEMPTS;) {
		/* Not only equal: a lap that was counted may lead behind an older tail. */
		if (c->seen >= ft_acquire(tail)) return ft_whole(r) ? FT_ERR_TRUNCATED : FT_EMPTY;
		if (ft_cursor_lapped(c, ft_acquire(intent))) {
			attempts++;
			continue;
		}
		const uint64_t number = c->seen + 1;
		const unsigned char *p = r->history + (size_t)((number - 1) & (r->history_len - 1)) * FT_HIS_SIZE;
		const uint64_t position = ft_u64(p, FT_HIS_POSITION);
		const uint32_t kind = ft_u32(p, FT_HIS_KIND);
		out->position = number;
		out->handle.index = ft_u32(p, FT_HIS_INDEX);
		out->handle.generation = ft_u32(p, FT_HIS_GENERATION);
		out->value.packets = ft_u64(p, FT_HIS_PACKETS);
		out->value.bytes = ft_u64(p, FT_HIS_BYTES);
		out->value.sampled_at = ft_i64(p, FT_HIS_TIME);
		out->cycle = ft_u64(p, FT_HIS_CYCLE);
		ft_fence();
		if (ft_cursor_lapped(c, ft_relaxed(intent))) {
			attempts++;
			continue;
		}
		c->seen = number;
		if (position != number) return FT_ERR_CORRUPT; /* and past it: the next call goes on */
		if (kind == 0) return FT_OK;
		/* Of a later version. Skipping costs no attempt, and ends at the tail. */
	}
	return FT_ERR_BUSY;
}

/* ---- texts --------------------------------------------------------------- */

static inline const char *ft_strerror(int result) {
	switch (result) {
	case FT_OK: return "ok";
	case FT_EMPTY: return "no new record";
	case FT_ERR_SYSTEM: return "mirror: a system call failed, errno says why";
	case FT_ERR_NO_FILE: return "mirror: no such file; is the writer running?";
	case FT_ERR_PERMISSION: return "mirror: no permission; the file's mode, its directory's, and for waiting the group of NAME.wait decide";
	case FT_ERR_LINK: return "mirror: the path is a symbolic link, which is not followed";
	case FT_ERR_NOT_FILE: return "mirror: not a regular file";
	case FT_ERR_OWNER: return "mirror: owned by somebody who is not trusted; name the owner to trust it";
	case FT_ERR_TRUNCATED: return "mirror: the file is shorter than it says";
	case FT_ERR_NOT_READY: return "mirror: not ready yet; try again";
	case FT_ERR_MAGIC: return "mirror: not a flowtally mirror";
	case FT_ERR_BYTE_ORDER: return "mirror: written by a machine of another byte order";
	case FT_ERR_VERSION: return "mirror: a format version that this reader does not know; rebuild it with a newer flowtally.h";
	case FT_ERR_FEATURE: return "mirror: uses features that this reader does not know; rebuild it with a newer flowtally.h";
	case FT_ERR_HEADER: return "mirror: the header holds an impossible value";
	case FT_ERR_CHECKSUM: return "mirror: the header's checksum is wrong";
	case FT_ERR_SECTIONS: return "mirror: the section table does not fit the file";
	case FT_ERR_NO_COUNTER: return "counter: none of that name or handle";
	case FT_ERR_GONE: return "counter: removed";
	case FT_ERR_BUSY: return "mirror: changed while it was read, 64 times in a row";
	case FT_ERR_CORRUPT: return "mirror: a word breaks the format; run flowtally check";
	case FT_ERR_MEMORY: return "out of memory";
	case FT_ERR_ARGUMENT: return "invalid argument";
	case FT_ERR_WORN: return "counter: too many were removed beside it for a snapshot to tell; read it alone";
	case FT_ERR_NO_DEVICE: return "counter: no device writes its words; read its value";
	case FT_ERR_TIMEOUT: return "counter: not reached in time";
	case FT_ERR_NOT_ALIVE: return "mirror: its writer ended, or a larger file took the name; open it again";
	case FT_ERR_COMPLETION: return "counter: operations completed in error";
	case FT_ERR_NO_WAKE: return "mirror: its writer wakes nobody; waiters look once per cycle";
	default: return "unknown result";
	}
}

#ifdef __cplusplus
}
#endif

#endif /* FLOWTALLY_H */
