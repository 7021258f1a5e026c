/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally_catalogue.h: the counters of a mirror: names, handles and the other fields
 * of an entry.
 *
 * A handle is an index with a generation. If another counter gets the slot, it has another
 * generation, so an old handle never reads it. An entry is copied between two loads of its
 * identity (the first an acquire, the second after a fence), and its source and flags
 * between two loads of its sequence word. So the whole copy belongs to one counter.
 *
 * From any thread. A function makes a system call only when it meets a segment for the
 * first time, or waits for the end of an exchange. A lookup scans the catalogue: look a
 * name up once, and again when the status's catalogue_changes has moved.
 *
 * In an exchange the writer first removes counters, then shows new ones, which may
 * continue the totals and the names of removed ones. While an exchange runs, ft_lookup
 * tries again, at most FT_ATTEMPTS times. A program that lists must do the same:
 *
 *     ft_list l = {0, 0};
 *     while (ft_list_again(&r, &l)) {
 *         begin an empty list
 *         for (uint32_t i = 0; i < ft_capacity(&r); i++)
 *             if (ft_get_entry(&r, i, &e) == FT_OK) add e to the list
 *     }
 *
 * The list then has each continuing counter exactly once. After FT_ATTEMPTS looks, which
 * take 0.4 s, counters of the exchange may be missing or listed twice, and ft_lookup may
 * not find them. That happens only if the writer was killed or stopped in the exchange.
 */
#ifndef FLOWTALLY_CATALOGUE_H
#define FLOWTALLY_CATALOGUE_H

#include "flowtally_reader.h"
#include "flowtally_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A handle identifies one counter of one file for ever. */
typedef struct ft_handle {
	uint32_t index, generation;
} ft_handle;

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

/* The state of one listing; all 0 at first. Fields are private. */
typedef struct ft_list {
	uint64_t word; /* catalogue_changes before the last look */
	uint64_t looks;
} ft_list;

/* The counter of that name. FT_ERR_NO_COUNTER: no live counter has it. FT_ERR_BUSY: an
 * exchange is running, perhaps of this counter too. Try again. */
FT_API int ft_lookup(const ft_reader *r, const char *name, ft_handle *out);
/* Entries by index, from 0 to ft_capacity - 1, which grows with the mirror.
 * FT_ERR_NO_COUNTER: the index has no live counter. */
FT_API uint32_t ft_capacity(const ft_reader *r);
FT_API int ft_get_entry(const ft_reader *r, uint32_t index, ft_entry *out);
/* 1: list the entries, for the first time or because an exchange ran during the last
 * listing. 0: the list is complete, or FT_ATTEMPTS are used up. */
FT_API int ft_list_again(const ft_reader *r, ft_list *l);

#ifndef FLOWTALLY_SHARED
FT_API uint32_t ft_capacity(const ft_reader *r) { return ft_segments(r) * FT_SEG_COUNTERS; }

/* The entry of an index. FT_ERR_NO_COUNTER: no segment has it. */
static inline int ft_entry_at(const ft_reader *r, uint32_t index, const unsigned char **entry) {
	const unsigned char *segment;
	uint32_t kind;
	const int err = ft_segment(r, index / FT_SEG_COUNTERS, &segment, &kind);
	if (!err) *entry = segment + (size_t)(index % FT_SEG_COUNTERS) * FT_ENT_SIZE;
	return err;
}

static inline uint64_t ft_live_identity(uint32_t generation) { return (uint64_t)FT_ENT_LIVE << 32 | generation; }

/* Copies the slot of an entry that is current. */
static inline int ft_get_slot(const unsigned char *entry, unsigned char *slot) {
	const uint64_t *seq = ft_word(entry, FT_ENT_SEQ);
	for (int i = 0; i < FT_ATTEMPTS; i++) {
		const uint64_t s = ft_acquire(seq); /* barrier slot-acquire */
		memcpy(slot, entry + FT_ENT_SLOTS + (s & 1) * FT_SLOT_SIZE, FT_SLOT_SIZE);
		ft_fence(); /* barrier entry-fence */
		if (ft_relaxed(seq) == s) return FT_OK;
	}
	return FT_ERR_BUSY;
}

FT_API int ft_get_entry(const ft_reader *r, uint32_t index, ft_entry *out) {
	const unsigned char *e;
	const int missing = ft_entry_at(r, index, &e);
	if (missing) return missing;
	if (index % FT_SEG_COUNTERS >= ft_high(r, index / FT_SEG_COUNTERS)) return FT_ERR_NO_COUNTER;
	uint64_t words[FT_SLOT_SIZE / 8];
	unsigned char *slot = (unsigned char *)words;
	for (int i = 0; i < FT_ATTEMPTS; i++) {
		const uint64_t identity = ft_acquire(ft_word(e, FT_ENT_IDENTITY)); /* barrier entry-acquire */
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
		ft_fence(); /* barrier entry-fence */
		if (ft_relaxed(ft_word(e, FT_ENT_IDENTITY)) != identity) continue;

		const uint32_t flags = ft_u32(slot, FT_SLOT_FLAGS);
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
		return ft_still(r);
	}
	return FT_ERR_BUSY;
}

static inline int ft_swapping(uint64_t changes) { return (int)(changes >> FT_SWAPS_SHIFT & 1); }

FT_API int ft_list_again(const ft_reader *r, ft_list *l) {
	struct timespec pause = {0, 0}; /* 0.4 s in all: a writer may wait for a CPU */
	const uint64_t *word = ft_word(r->base, FT_HDR_CATALOGUE_CHANGES);
	uint64_t now = ft_acquire(word); /* barrier changes-acquire */
	if (l->looks > FT_ATTEMPTS) return 0;
	if (l->looks > 0 && !ft_swapping(l->word) && (now ^ l->word) >> FT_SWAPS_SHIFT == 0) return 0;
	for (l->looks++; ft_swapping(now) && l->looks <= FT_ATTEMPTS; l->looks++) {
		pause.tv_nsec = (long)l->looks * 200000;
		(void)nanosleep(&pause, NULL);
		now = ft_acquire(word); /* barrier changes-acquire */
	}
	l->word = now;
	return 1;
}

/* Looks for a name in one segment. length includes the NUL, so that no longer name
 * matches. */
static inline int ft_lookup_segment(const ft_reader *r, uint32_t number, const char *name, size_t length, ft_handle *out) {
	const unsigned char *segment;
	uint32_t kind;
	const int err = ft_segment(r, number, &segment, &kind);
	if (err) return err;
	for (uint32_t slot = 0, high = ft_high(r, number); slot < high; slot++) {
		const unsigned char *e = segment + (size_t)slot * FT_ENT_SIZE;
		const uint64_t identity = ft_acquire(ft_word(e, FT_ENT_IDENTITY)); /* barrier entry-acquire */
		if (identity >> 32 != FT_ENT_LIVE || memcmp(e + FT_ENT_NAME, name, length) != 0) continue;
		ft_fence(); /* barrier entry-fence */
		/* If the identity has changed, the counter with this name was removed meanwhile. */
		if (ft_relaxed(ft_word(e, FT_ENT_IDENTITY)) != identity) continue;
		out->index = number * FT_SEG_COUNTERS + slot;
		out->generation = (uint32_t)identity;
		return FT_OK;
	}
	return FT_ERR_NO_COUNTER;
}

FT_API int ft_lookup(const ft_reader *r, const char *name, ft_handle *out) {
	const size_t length = strlen(name);
	int err = FT_ERR_NO_COUNTER;
	ft_list l = {0, 0};
	ft_status s;
	while (length > 0 && length < sizeof((ft_entry *)0)->name && err == FT_ERR_NO_COUNTER && ft_list_again(r, &l))
		for (uint32_t n = 0; n < ft_segments(r) && err == FT_ERR_NO_COUNTER; n++)
			err = ft_lookup_segment(r, n, name, length + 1, out);
	if (err == FT_ERR_NO_COUNTER && l.looks > FT_ATTEMPTS && !ft_get_status(r, &s) && s.alive) err = FT_ERR_BUSY;
	const int still = ft_still(r);
	return still ? still : err;
}
#endif /* FLOWTALLY_SHARED */

#ifdef __cplusplus
}
#endif

#endif /* FLOWTALLY_CATALOGUE_H */
