/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally_device.h: reading the words that a device writes by DMA, beside a
 * mirror, with no poller in between.
 *
 *     ft_device_segment s;
 *     ft_device d;
 *     uint64_t completions, errors;
 *     int err = ft_device_open(&s, &r, NULL);
 *     if (!err) err = ft_device_attach(&s, &r, h, &d);
 *     if (!err) err = ft_device_load(&d, &completions, &errors);
 *
 * Promises (docs/reading.md)
 *
 *   - Each total is correct, however often the device's word has wrapped around.
 *   - The two totals need not belong to one instant, because the device writes them one
 *     by one. There is no sample time, because the device does not store one.
 *   - ft_device_load never returns the words of another counter. If the slot changed
 *     hands, it returns FT_ERR_GONE, or FT_ERR_NO_DEVICE if the counter continues without
 *     a device. Its ordinary value (ft_load) is always available.
 *   - An ft_device keeps working while the mirror grows, and after it was made anew,
 *     because the words do not move. It ends with the segment or the slot.
 *
 * Threads: any number may use one ft_device_segment or ft_device. An ft_device borrows
 * from the segment and from the reader's mapping: stop using it before ft_device_close,
 * and before ft_close or an ft_follow that opens another file.
 */
#ifndef FLOWTALLY_DEVICE_H
#define FLOWTALLY_DEVICE_H

#include "flowtally.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A mapped segment. Fields are private. */
typedef struct ft_device_segment {
	const unsigned char *base;
	size_t size;
	uint64_t generation;
	uint32_t slots;
	int mapped;               /* 0: by ft_device_open_memory */
	struct ft_guarded *guard; /* NULL without ft_guard_sigbus */
} ft_device_segment;

/* The words of one counter. Fields are private. */
typedef struct ft_device {
	const unsigned char *slot;
	const uint64_t *ended;    /* of the segment */
	const uint64_t *identity; /* of the entry */
	uint64_t seq;             /* the slot's seq as long as it serves the counter */
	ft_handle handle;
} ft_device;

/* Maps the segment beside the mirror of r, which is NAME.device for NAME.mirror.
 * FT_ERR_NO_DEVICE: the file is missing, or of another mirror. FT_ERR_ARGUMENT: r was
 * attached. */
FT_API int ft_device_open(ft_device_segment *s, const ft_reader *r, const ft_options *options);
/* The same for size bytes that are in memory already, 8-byte aligned. */
FT_API int ft_device_open_memory(ft_device_segment *s, const void *base, size_t size);
FT_API void ft_device_close(ft_device_segment *s);

/* Finds the words of a counter. FT_ERR_NO_DEVICE: no device writes it, or one
 * writes it in another segment: open that. FT_ERR_STALE: the mirror was given up, and no
 * longer says which slots serve its counters: ft_follow. */
FT_API int ft_device_attach(const ft_device_segment *s, const ft_reader *r, ft_handle h, ft_device *out);
FT_API int ft_device_load(const ft_device *d, uint64_t *completions, uint64_t *errors);

/* ---- layout: docs/mirror-format.md, section 10 ---------------------------- */

enum {
	FT_DEV_VERSION = 8,
	FT_DEV_BYTE_ORDER = 12,
	FT_DEV_LENGTH = 16,
	FT_DEV_SLOT_LENGTH = 20,
	FT_DEV_FILE_LENGTH = 24,
	FT_DEV_GENERATION = 40,
	FT_DEV_SLOTS = 48,
	FT_DEV_CHECKSUM = 56,
	FT_DEV_ENDED_AT = 512,

	FT_DSL_WORDS = 0,
	FT_DSL_SEQ = 64,
	FT_DSL_MAX_VALUE = 72,
	FT_DSL_SHIFT = 80,
	FT_DSL_SEEN = 96,
	FT_DSL_STATE = 112,
	FT_DSL_SIZE = 128,

	FT_DEVICE_HEADER_SIZE = 4096, /* the file's length is a multiple of it too */
	FT_MOST_DEVICE_SLOTS = 1 << 20
};

#ifndef FLOWTALLY_SHARED
/* ---- order ---------------------------------------------------------------
 *
 * A total is seen plus the distance that the word has moved since.
 *
 * Load seen with acquire, then the word. The writer computed seen from a word that it had
 * read before, so the word loaded here is that one or a later one.
 *
 * Then load seen again. The load of the word was an acquire, so this one comes after it on
 * arm64 too. If seen has not changed, the word was within one round of seen, because the
 * writer stores a new seen in each quarter of a round.
 *
 * Last, after a fence, load seq. The writer makes it even before it stores the numbers of
 * the slot's next counter, and odd after them. So if seq has not changed, all that was
 * loaded belongs to this counter. */

FT_API int ft_device_open_memory(ft_device_segment *s, const void *base, size_t size) {
	memset(s, 0, sizeof *s);
	if (base == NULL || (uintptr_t)base % 8 != 0) return FT_ERR_ARGUMENT;
	if (size < FT_DEVICE_HEADER_SIZE) return FT_ERR_TRUNCATED;
	/* Copy the header once, then check and use only the copy: a hostile owner may change
	 * the file at any time. The checksum covers the version, which the writer stores last. */
	uint64_t words[FT_DEV_CHECKSUM / 8 + 1];
	for (size_t i = 0; i < sizeof words / 8; i++) words[i] = ft_u64((const unsigned char *)base, 8 * i);
	const unsigned char *p = (const unsigned char *)words;
	const uint32_t version = ft_u32(p, FT_DEV_VERSION), slots = ft_u32(p, FT_DEV_SLOTS);
	const uint64_t length = ft_u64(p, FT_DEV_FILE_LENGTH);
	if (version == 0) return FT_ERR_NOT_READY;
	if (memcmp(p, "FLOWTDEV", 8) != 0) return FT_ERR_MAGIC;
	if (ft_u32(p, FT_DEV_BYTE_ORDER) != 0x01020304) return FT_ERR_BYTE_ORDER;
	if (version != 1) return FT_ERR_VERSION;
	if (ft_u32(p, FT_DEV_LENGTH) != FT_DEVICE_HEADER_SIZE || ft_u32(p, FT_DEV_SLOT_LENGTH) != FT_DSL_SIZE) return FT_ERR_HEADER;
	if (ft_u64(p, FT_DEV_CHECKSUM) != ft_checksum(p, FT_DEV_CHECKSUM)) return FT_ERR_CHECKSUM;
	s->generation = ft_u64(p, FT_DEV_GENERATION);
	if (slots == 0 || slots > FT_MOST_DEVICE_SLOTS || s->generation == 0) return FT_ERR_HEADER;
	const uint64_t least = FT_DEVICE_HEADER_SIZE + (uint64_t)slots * FT_DSL_SIZE;
	if (length != (least + FT_DEVICE_HEADER_SIZE - 1) / FT_DEVICE_HEADER_SIZE * FT_DEVICE_HEADER_SIZE) return FT_ERR_HEADER;
	if (length > size) return FT_ERR_TRUNCATED;
	s->base = (const unsigned char *)base;
	s->size = size;
	s->slots = slots;
	return FT_OK;
}

FT_API void ft_device_close(ft_device_segment *s) {
	ft_guard_drop(s->guard);
	if (s->mapped) ft_unmap(s->base, s->size);
	memset(s, 0, sizeof *s);
}

/* Maps a file and checks it. The length has a bound: only the beginning of a longer
 * file is mapped. */
static inline int ft_device_map(ft_device_segment *s, int fd, uint64_t size, uint64_t generation) {
	const uint64_t most = FT_DEVICE_HEADER_SIZE + (uint64_t)FT_MOST_DEVICE_SLOTS * FT_DSL_SIZE;
	const unsigned char *base = NULL;
	struct ft_guarded *guard = NULL;
	const size_t length = (size_t)(size < most ? size : most);
	int err = ft_map(fd, 0, length, &base);
	if (err) return err;
	err = ft_guard_take(base, length, NULL, &guard);
	if (!err) err = ft_device_open_memory(s, base, length);
	if (!err && s->generation != generation) err = FT_ERR_NO_DEVICE;
	if (ft_guard_whole(guard)) err = FT_ERR_TRUNCATED;
	s->base = base;
	s->size = length;
	s->mapped = 1;
	s->guard = guard;
	if (err) ft_device_close(s);
	return err;
}

FT_API int ft_device_open(ft_device_segment *s, const ft_reader *r, const ft_options *options) {
	uint64_t size = 0;
	int fd = -1;
	memset(s, 0, sizeof *s);
	if (r->path == NULL) return FT_ERR_ARGUMENT;
	const uint64_t generation = ft_acquire(ft_word(r->base, FT_HDR_DEVICE_GENERATION));
	if (generation == 0) return FT_ERR_NO_DEVICE;
	char *path = ft_beside(r->path, ".device");
	if (path == NULL) return FT_ERR_MEMORY;
	int err = ft_open_file(path, options, FT_DEVICE_HEADER_SIZE, &fd, &size);
	free(path);
	if (!err) err = ft_device_map(s, fd, size, generation);
	ft_close_file(fd); /* the mapping stays */
	return err;
}

FT_API int ft_device_attach(const ft_device_segment *s, const ft_reader *r, ft_handle h, ft_device *out) {
	const unsigned char *e;
	const int missing = ft_entry_at(r, h.index, &e);
	if (missing) return missing;
	const uint64_t *identity = ft_word(e, FT_ENT_IDENTITY), *entry_seq = ft_word(e, FT_ENT_SEQ);
	const uint64_t *ended = ft_word(s->base, FT_DEV_ENDED_AT);
	for (int i = 0; i < FT_ATTEMPTS; i++) {
		const uint64_t generation = ft_acquire(ft_word(r->base, FT_HDR_DEVICE_GENERATION));
		if (ft_acquire(identity) != ft_live_identity(h.generation)) return FT_ERR_GONE;
		const uint64_t current = ft_acquire(entry_seq);
		const uint32_t device = ft_u32(e, FT_ENT_SLOTS + (current & 1) * FT_SLOT_SIZE + FT_SLOT_DEVICE);
		const int serves = generation == s->generation && device != 0 && ft_acquire(ended) == 0;
		if (serves && device > s->slots) return FT_ERR_CORRUPT;
		const unsigned char *slot = s->base + FT_DEVICE_HEADER_SIZE + (size_t)(serves ? device - 1 : 0) * FT_DSL_SIZE;
		const uint64_t seq = ft_acquire(ft_word(slot, FT_DSL_SEQ)); /* barrier slot-given-acquire */
		/* Load the mark after seq. If the mirror was given up before, this catalogue is out
		 * of date, and only the next mirror's says which counter has the slot. */
		const int stale = ft_stale(ft_word(r->base, FT_HDR_REPLACED));
		if (stale) return stale;
		/* The entry named the slot before we loaded seq, and still names it. So as long as
		 * the slot has this seq, it serves no other counter. */
		ft_fence();
		if (ft_relaxed(entry_seq) != current || ft_relaxed(identity) != ft_live_identity(h.generation)) continue;
		if (ft_u64(r->base, FT_HDR_DEVICE_GENERATION) != generation) continue;
		if (!serves) return FT_ERR_NO_DEVICE;
		if ((seq & 1) == 0) continue;
		/* The words are in a words file, which this header does not map. */
		if (ft_u32(slot, FT_DSL_STATE) != 0) return FT_ERR_NO_DEVICE;
		out->slot = slot;
		out->ended = ended;
		out->identity = identity;
		out->seq = seq;
		out->handle = h;
		return FT_OK;
	}
	return FT_ERR_BUSY;
}

/* The total of a word: 0 completions, 1 errors. */
static inline int ft_device_total(const unsigned char *slot, size_t which, uint64_t *out) {
	const uint64_t *word = ft_word(slot, FT_DSL_WORDS + 8 * which), *seen = ft_word(slot, FT_DSL_SEEN + 8 * which);
	for (int i = 0; i < FT_ATTEMPTS; i++) {
		const uint64_t from = ft_acquire(seen), now = ft_acquire(word); /* barrier seen-acquire, barrier word-acquire */
		if (ft_acquire(seen) != from) continue;
		const uint64_t limit = ft_u64(slot, FT_DSL_MAX_VALUE), shift = ft_u64(slot, FT_DSL_SHIFT + 8 * which);
		if (now > limit || shift > limit) return FT_ERR_CORRUPT;
		/* Words count modulo limit + 1. For the largest limit that is 2^64, which
		 * overflows to 0 here, and uint64_t wraps around at the right place by itself. */
		const uint64_t modulus = limit + 1;
		uint64_t then = from + shift;
		if (modulus != 0) {
			then = from % modulus;
			then = then >= modulus - shift ? then - (modulus - shift) : then + shift;
		}
		*out = from + (now - then) + (now < then ? modulus : 0);
		return FT_OK;
	}
	return FT_ERR_BUSY;
}

FT_API int ft_device_load(const ft_device *d, uint64_t *completions, uint64_t *errors) {
	uint64_t ok = 0, failed = 0;
	int err = ft_device_total(d->slot, 0, &ok);
	if (!err) err = ft_device_total(d->slot, 1, &failed);
	/* Look at the slot after the words: if it still serves the counter, the words were the
	 * counter's when we loaded them (barrier device-fence). */
	ft_fence();
	if (ft_relaxed(ft_word(d->slot, FT_DSL_SEQ)) != d->seq || ft_acquire(d->ended) != 0)
		return ft_acquire(d->identity) != ft_live_identity(d->handle.generation) ? FT_ERR_GONE : FT_ERR_NO_DEVICE;
	if (err) return err;
	*completions = ok;
	*errors = failed;
	return FT_OK;
}
#endif /* FLOWTALLY_SHARED */

#ifdef __cplusplus
}
#endif

#endif /* FLOWTALLY_DEVICE_H */
