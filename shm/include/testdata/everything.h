/* Every function of the reader, one after another, on a file that may hold anything:
 * for programs that look for faults. The sanitizers see every byte that was read. */
#ifndef EVERYTHING_H
#define EVERYTHING_H

#include "flowtally_device.h"
#include "flowtally_live.h"
#include "flowtally_wait.h"

static uint64_t state;
static uint64_t next_random(void) { /* xorshift64* */
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * 0x2545f4914f6cdd1du;
}

static uint64_t sink;
static void use(const void *p, size_t n) {
	for (size_t i = 0; i < n; i++) sink += ((const unsigned char *)p)[i];
}

/* Calls one for each index up to the first that no segment may hold. A segment that
 * cannot be read is skipped, and the eighth ends it: a file may declare 4096 of them. */
static void each_index(const ft_reader *r, int (*one)(const ft_reader *r, uint32_t index, void *with), void *with) {
	int bad = 0;
	for (uint32_t i = 0, end = ft_capacity(r); i <= end && bad < 8; i++) {
		const int err = one(r, i, with);
		if (err == FT_OK || err == FT_ERR_NO_COUNTER || err == FT_ERR_GONE || err == FT_ERR_BUSY) continue;
		i |= FT_SEG_COUNTERS - 1;
		bad++;
	}
}

struct handles {
	ft_handle list[8];
	size_t n;
};

static int one_entry(const ft_reader *r, uint32_t index, void *with) {
	struct handles *some = (struct handles *)with;
	ft_entry e;
	ft_counter c;
	ft_value v;
	const int err = ft_get_entry(r, index, &e);
	if (err) return err;
	for (const char *p = e.labels; *p; p += strlen(p) + 1) use(p, strlen(p));
	use(e.name, strlen(e.name));
	use(e.text, strlen(e.text));
	use(e.source, strlen(e.source));
	if (ft_counter_open(r, e.handle, &c) == FT_OK && ft_load(&c, &v) == FT_OK) use(&v, sizeof v);
	if (some->n < 8) some->list[some->n++] = e.handle;
	return FT_OK;
}

static int one_value(const ft_reader *r, uint32_t index, void *with) {
	const ft_handle h = {index, 1};
	ft_value v;
	const int err = ft_snapshot_get((const ft_snapshot *)with, h, &v);
	(void)r;
	if (!err) use(&v, sizeof v);
	return err;
}

static void everything(const ft_reader *r) {
	ft_status st;
	ft_named named;
	ft_value v;
	(void)ft_get_status(r, &st);
	use(ft_state_name(st.state), 1);
	(void)ft_poll_period(r);
	struct handles some;
	some.n = 0;
	each_index(r, one_entry, &some);
	ft_handle h = {(uint32_t)next_random(), 1};
	ft_counter c;
	(void)ft_counter_open(r, h, &c);
	(void)ft_lookup(r, "c1", &h);
	(void)ft_lookup(r, "no such counter", &h);
	if (ft_named_open(r, "c17", &named) == FT_OK && ft_named_load(r, &named, &v) == FT_OK) use(&v, sizeof v);
	if (some.n > 0) (void)ft_wait(r, some.list[0], UINT64_MAX, 0, &v);
	for (int all = 0; all < 2; all++) {
		ft_snapshot s;
		if (ft_snapshot_open(&s, r, all ? NULL : some.list, some.n) != FT_OK) continue;
		(void)ft_snapshot_take(&s);
		each_index(r, one_value, &s);
		ft_snapshot_close(&s);
	}
	for (int oldest = 0; oldest < 2; oldest++) {
		ft_cursor cur;
		ft_record rec;
		if (ft_cursor_open(&cur, r, oldest) != FT_OK) continue;
		for (uint32_t i = 0; i < r->history_len + 2 && ft_cursor_next(&cur, &rec) == FT_OK; i++) use(&rec, sizeof rec);
	}
}

static int one_device(const ft_reader *r, uint32_t index, void *with) {
	const ft_handle h = {index, 1};
	ft_device d;
	uint64_t completions, errors;
	const int err = ft_device_attach((const ft_device_segment *)with, r, h, &d);
	if (err) return err == FT_ERR_NO_DEVICE ? FT_OK : err;
	if (ft_device_load(&d, &completions, &errors) == FT_OK) sink += completions + errors;
	return FT_OK;
}

__attribute__((unused)) static void all_words(const ft_reader *r, ft_device_segment *s) { each_index(r, one_device, s); }

static long read_live; /* how often */
static int one_live(const ft_reader *r, uint32_t index, void *with) {
	const ft_handle h = {index, 1};
	ft_live_counter c;
	uint64_t packets, bytes;
	const int err = ft_live_attach((const ft_live_map *)with, r, h, &c);
	if (err) return err == FT_ERR_NO_LIVE ? FT_OK : err;
	if (ft_live(&c, &packets, &bytes) == FT_OK) {
		sink += packets + bytes;
		read_live++;
	}
	return FT_OK;
}

__attribute__((unused)) static void all_live(const ft_reader *r, ft_live_map *m) { each_index(r, one_live, m); }

#endif /* EVERYTHING_H */
