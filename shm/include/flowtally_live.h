/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally_live.h: reading a counter in the memory in which the kernel counts it, with
 * no poller in between.
 *
 *     ft_live_map m;
 *     ft_live_counter c;
 *     uint64_t packets, bytes;
 *     int err = ft_live_open(&m, &r, NULL);
 *     if (!err) err = ft_live_attach(&m, &r, h, &c);
 *     if (!err) err = ft_live(&c, &packets, &bytes);
 *
 * Promises (docs/reading.md)
 *
 *   - A total includes every packet counted before the call, and the bytes of exactly
 *     those packets on each CPU. It is never less than a value of the counter that the
 *     thread has read before, from the mirror or here.
 *   - ft_live makes no system call, allocates nothing and waits for no process.
 *   - ft_live never returns the count of another counter. If the counter gets another
 *     slot, ft_live finds it. If the counter was removed, the result is FT_ERR_GONE; if it
 *     is counted elsewhere, FT_ERR_NO_LIVE. In the second case attach again once the
 *     catalogue has changed, and if that fails too, open again: the writer may have
 *     another map. The ordinary value (ft_load) is always available.
 *
 * Threads: any number may use one ft_live_map, but only one at a time an ft_live_counter.
 * That one borrows from the map and the reader: stop using it before ft_live_close,
 * ft_close, and an ft_follow that opens another file. Linux only; elsewhere ft_live_open
 * returns FT_ERR_NO_LIVE.
 */
#ifndef FLOWTALLY_LIVE_H
#define FLOWTALLY_LIVE_H

#include "flowtally.h"
#include "flowtally_socket.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A mapped map. Fields are private. */
typedef struct ft_live_map {
	const unsigned char *base;
	size_t size;
	size_t stride; /* bytes from one CPU's slots to the next one's */
	uint32_t id, cpus, counters;
	int mapped; /* 0: the caller owns the memory */
} ft_live_map;

/* The slots of one counter. Fields are private. */
typedef struct ft_live_counter {
	const unsigned char *slot, *end; /* of the first CPU; of the slots of all */
	size_t stride;
	const uint64_t *state, *epoch; /* and their values under which the slots serve the counter */
	uint64_t under, of;
	uint64_t packets, bytes; /* the total when the slots were 0 */
	const ft_live_map *map;
	const ft_reader *reader;
	ft_handle handle;
} ft_live_counter;

/* Asks the socket beside the mirror of r, which is NAME.live for NAME.mirror, for the map.
 * Takes a second at most. FT_ERR_NO_LIVE: there is no socket, or it does not reply.
 * FT_ERR_PERMISSION: the caller may not connect. FT_ERR_OWNER: the other end belongs to a
 * user who is not trusted. FT_ERR_ARGUMENT: r was attached. */
FT_API int ft_live_open(ft_live_map *m, const ft_reader *r, const ft_options *options);
/* ft_live_open for a message of FT_LIVE_SIZE bytes, and size bytes that are in memory
 * already, 8-byte aligned. */
FT_API int ft_live_open_memory(ft_live_map *m, const void *message, const void *base, size_t size);
FT_API void ft_live_close(ft_live_map *m);

/* Finds the slots of a counter. FT_ERR_NO_LIVE: the kernel does not count it in this map. */
FT_API int ft_live_attach(const ft_live_map *m, const ft_reader *r, ft_handle h, ft_live_counter *out);
FT_API int ft_live(ft_live_counter *c, uint64_t *packets, uint64_t *bytes);

/* ---- layout: docs/mirror-format.md, section 11 ---------------------------- */

enum {
	FT_LVM_VERSION = 8,
	FT_LVM_BYTE_ORDER = 12,
	FT_LVM_MAP = 16,
	FT_LVM_CPUS = 20,
	FT_LVM_COUNTERS = 24,
	FT_LVM_STRIDE = 32,

	FT_LIVE_SIZE = 64,
	FT_MOST_LIVE_COUNTERS = 1 << 20
};

#ifndef FLOWTALLY_SHARED
/* ---- order ---------------------------------------------------------------
 *
 * The writer stores an odd count in live_state, then a store fence, then it changes the
 * other live words, and stores the rule by which the kernel counts for another counter in
 * the slot. The slots are loaded between two loads of live_state, with a load fence before
 * the second. If a slot held a count of the other counter, the second load differs. The
 * epoch, which a process raises when it takes the map over, is compared likewise. */

static inline int ft_live_check(ft_live_map *m, const unsigned char *message, uint64_t *length) {
	uint32_t words[FT_LIVE_SIZE / 4];
	uint64_t stride;
	memset(m, 0, sizeof *m);
	memcpy(words, message, sizeof words);
	memcpy(&stride, message + FT_LVM_STRIDE, sizeof stride);
	const uint32_t cpus = words[FT_LVM_CPUS / 4], counters = words[FT_LVM_COUNTERS / 4];
	if (memcmp(message, "FLOWLIVE", 8) != 0) return FT_ERR_MAGIC;
	if (words[FT_LVM_BYTE_ORDER / 4] != 0x01020304) return FT_ERR_BYTE_ORDER;
	if (words[FT_LVM_VERSION / 4] != 1) return FT_ERR_VERSION;
	if (words[FT_LVM_MAP / 4] == 0 || cpus == 0 || cpus > 1u << 16 || counters == 0 || counters > FT_MOST_LIVE_COUNTERS) return FT_ERR_HEADER;
	if (stride < 16 * (uint64_t)counters || stride > 16 * (uint64_t)FT_MOST_LIVE_COUNTERS || stride % 8 != 0) return FT_ERR_HEADER;
	*length = cpus * stride + 8;
	if (*length > SIZE_MAX) return FT_ERR_MEMORY;
	m->id = words[FT_LVM_MAP / 4];
	m->cpus = cpus;
	m->counters = counters;
	m->stride = (size_t)stride;
	return FT_OK;
}

FT_API int ft_live_open_memory(ft_live_map *m, const void *message, const void *base, size_t size) {
	uint64_t length = 0;
	int err = ft_live_check(m, (const unsigned char *)message, &length);
	if (!err && (base == NULL || (uintptr_t)base % 8 != 0)) err = FT_ERR_ARGUMENT;
	if (!err && size < length) err = FT_ERR_TRUNCATED;
	if (err) {
		memset(m, 0, sizeof *m);
		return err;
	}
	m->base = (const unsigned char *)base;
	m->size = size;
	return FT_OK;
}

FT_API void ft_live_close(ft_live_map *m) {
	if (m->mapped) ft_unmap(m->base, m->size);
	memset(m, 0, sizeof *m);
}

#ifdef __linux__
/* Maps the map of a message. The kernel refuses a mapping that is longer than the map's
 * value, and the map never loses a page. A file could be cut short, and is refused. */
static inline int ft_live_take(ft_live_map *m, const unsigned char *message, int fd) {
	struct stat st;
	uint64_t length = 0;
	const unsigned char *base = NULL;
	int err = ft_live_check(m, message, &length);
	if (!err && fstat(fd, &st) != 0) err = FT_ERR_SYSTEM;
	if (!err && (st.st_mode & S_IFMT) != 0) err = FT_ERR_NOT_FILE;
	if (err) return err;
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	length = (length + page - 1) / page * page;
	if (ft_map(fd, 0, length, &base) != FT_OK) return FT_ERR_TRUNCATED;
	m->base = base;
	m->size = (size_t)length;
	m->mapped = 1;
	return FT_OK;
}

static inline int ft_live_ask(ft_live_map *m, const ft_reader *r, const ft_options *options) {
	unsigned char message[FT_LIVE_SIZE];
	int fd = -1;
	int s = -1;
	int err = ft_socket_connect(r->path, ".live", options, FT_ERR_NO_LIVE, &s);
	if (!err) err = ft_socket_receive(s, message, sizeof message, &fd, FT_ERR_NO_LIVE);
	ft_close_file(s);
	if (!err && fd < 0) err = FT_ERR_CORRUPT;
	if (!err) err = ft_live_take(m, message, fd);
	ft_close_file(fd); /* the mapping stays */
	return err;
}
#else
static inline int ft_live_ask(ft_live_map *m, const ft_reader *r, const ft_options *options) {
	(void)m, (void)r, (void)options;
	return FT_ERR_NO_LIVE;
}
#endif

FT_API int ft_live_open(ft_live_map *m, const ft_reader *r, const ft_options *options) {
	memset(m, 0, sizeof *m);
	const int err = r->path == NULL ? FT_ERR_ARGUMENT : ft_live_ask(m, r, options);
	if (err) memset(m, 0, sizeof *m);
	return err;
}

FT_API int ft_live_attach(const ft_live_map *m, const ft_reader *r, ft_handle h, ft_live_counter *out) {
	const unsigned char *e;
	const int missing = ft_entry_at(r, h.index, &e);
	if (missing) return missing;
	const uint64_t *state = ft_word(e, FT_ENT_LIVE_STATE), *identity = ft_word(e, FT_ENT_IDENTITY);
	for (int i = 0; i < FT_ATTEMPTS; i++) {
		const uint64_t s = ft_acquire(state); /* barrier view-acquire */
		const uint64_t map = ft_u64(e, FT_ENT_LIVE_MAP);
		const uint64_t packets = ft_u64(e, FT_ENT_LIVE_BASE), bytes = ft_u64(e, FT_ENT_LIVE_BASE + 8);
		ft_fence(); /* barrier view-words-fence */
		if ((s >> 32 & 1) != 0 || ft_acquire(state) != s) continue;
		if (ft_acquire(identity) != ft_live_identity(h.generation)) return FT_ERR_GONE;
		const int stale = ft_stale(ft_word(r->base, FT_HDR_REPLACED));
		if (stale) return stale;
		const uint32_t slot = (uint32_t)s;
		if (map == 0 || map >> 32 != m->id) return FT_ERR_NO_LIVE;
		if (slot >= m->counters) return FT_ERR_CORRUPT;
		/* It rises before the kernel counts for another process's counters in this slot. */
		const uint64_t *epoch = ft_word(m->base, m->cpus * m->stride);
		const uint64_t of = ft_acquire(epoch);
		if ((uint32_t)of != (uint32_t)map) return FT_ERR_NO_LIVE;
		out->slot = m->base + (size_t)slot * 16;
		out->end = m->base + m->cpus * m->stride;
		out->stride = m->stride;
		out->state = state;
		out->under = s;
		out->epoch = epoch;
		out->of = of;
		out->packets = packets;
		out->bytes = bytes;
		out->map = m;
		out->reader = r;
		out->handle = h;
		return FT_OK;
	}
	return FT_ERR_BUSY;
}

/* Loads one CPU's slot: packets, and 256 times the bytes of these packets plus packets. The
 * kernel stores the words in this order, and adds at most 255 packets at once. */
__attribute__((noinline, unused)) static int ft_live_pair(const uint64_t *slot, uint64_t *first, uint64_t *second) {
	for (int i = 0; i < 64 * FT_ATTEMPTS; i++) {
		const uint64_t s = ft_acquire(slot + 1), p = ft_acquire(slot);
		if (ft_acquire(slot + 1) != s) continue;
		const uint64_t ahead = (p - s) & 0xff;
#if defined __x86_64__ || defined __i386__
		/* Stores become visible in order: p is ahead by the packets of one update. */
#else
		if (ahead != 0) continue;
#endif
		*first = p - ahead;
		*second = s;
		return FT_OK;
	}
	return FT_ERR_BUSY;
}

/* The slots have 56 bits of bytes: a total below zero says that they have wrapped around. */
static inline uint64_t ft_live_bytes(uint64_t total) { return total + (total >> 63 << 56); }

/* The slow form of ft_live, which has met a slot between its two stores, or a changed one. */
__attribute__((noinline, unused)) static int ft_live_again(ft_live_counter *c, uint64_t *packets, uint64_t *bytes) {
	for (int i = 0; i < FT_ATTEMPTS; i++) {
		int err = ft_live_attach(c->map, c->reader, c->handle, c);
		uint64_t p = 0, s = 0, first, second;
		for (const unsigned char *at = c->slot; !err && at < c->end; at += c->stride) {
			err = ft_live_pair(ft_word(at, 0), &first, &second);
			if (!err) p += first, s += second;
		}
		if (err) return err;
		ft_fence(); /* barrier view-fence */
		if (ft_relaxed(c->state) != c->under || ft_relaxed(c->epoch) != c->of) continue;
		*packets = c->packets + p;
		*bytes = ft_live_bytes(c->bytes + ((s - p) >> 8));
		return FT_OK;
	}
	return FT_ERR_BUSY;
}

FT_API int ft_live(ft_live_counter *c, uint64_t *packets, uint64_t *bytes) {
	uint64_t p = 0, s = 0;
	for (const unsigned char *at = c->slot; at < c->end; at += c->stride) {
		const uint64_t *slot = ft_word(at, 0);
		const uint64_t second = ft_acquire(slot + 1), first = ft_acquire(slot);
		if (ft_acquire(slot + 1) != second || ((first ^ second) & 0xff) != 0) return ft_live_again(c, packets, bytes);
		p += first;
		s += second;
	}
	ft_fence(); /* barrier view-fence */
	if (ft_relaxed(c->state) != c->under || ft_relaxed(c->epoch) != c->of) return ft_live_again(c, packets, bytes);
	*packets = c->packets + p;
	*bytes = ft_live_bytes(c->bytes + ((s - p) >> 8));
	return FT_OK;
}
#endif /* FLOWTALLY_SHARED */

#ifdef __cplusplus
}
#endif

#endif /* FLOWTALLY_LIVE_H */
