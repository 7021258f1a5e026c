/* Reads a mirror that grows, with no call made for that. In each cycle n the writer
 * gives every counter the value packets n and bytes 1500 n.
 *
 *     grow PATH READS SEGMENTS
 *
 * ends after READS sampled values, and when there were SEGMENTS segments and a value in
 * each. Every value is of a cycle that was not over before the read, and whole. */
#include "flowtally.h"

#include <inttypes.h>
#include <stdio.h>

enum { MOST = 1 << 17 };

int main(int argc, char **argv) {
	static ft_counter counters[MOST];
	static unsigned char sampled[FT_MOST_SEGMENTS];
	ft_reader r;
	ft_snapshot snap;
	uint64_t reads = 0, late = 0, torn = 0, busy = 0, absent = 0, snapshots = 0, mixed = 0, random = 88172645463325252u;
	uint32_t n = 0, index = 0, seen = 0, segments = 0;
	if (argc != 4) return 2;
	(void)alarm(280);
	const uint64_t want = strtoull(argv[2], NULL, 10), enough = strtoull(argv[3], NULL, 10);
	int err = ft_open(&r, argv[1], NULL);
	if (!err) err = ft_snapshot_open(&snap, &r, NULL, 0);
	while (!err && (reads < want || seen < enough)) {
		/* Counters that came since, until one that is not there yet. */
		for (uint32_t most = ft_capacity(&r); index < most && n < MOST; index++) {
			ft_entry e;
			err = ft_get_entry(&r, index, &e);
			if (!err) err = ft_counter_open(&r, e.handle, &counters[n]);
			if (err) break;
			n++;
		}
		if (err == FT_ERR_NO_COUNTER && index % FT_SEG_COUNTERS != 0 && (index / FT_SEG_COUNTERS + 1) * FT_SEG_COUNTERS < ft_capacity(&r))
			index = (index / FT_SEG_COUNTERS + 1) * FT_SEG_COUNTERS; /* a segment of the other kind came before this one was full */
		if (err == FT_ERR_NO_COUNTER || err == FT_ERR_BUSY) err = FT_OK;
		for (int i = 0; i < 20000 && n > 0 && !err; i++) {
			ft_value v;
			random ^= random << 13;
			random ^= random >> 7;
			random ^= random << 17;
			ft_counter *c = &counters[random % n];
			const uint64_t done = ft_acquire(ft_word(r.base, FT_HDR_CYCLE_DONE));
			err = ft_load(c, &v);
			busy += err == FT_ERR_BUSY;
			if (err == FT_ERR_BUSY) err = FT_OK;
			else if (!err && v.sampled_at == 0) absent++;
			else if (!err) {
				reads++;
				torn += v.bytes != 1500 * v.packets;
				late += v.packets < done;
				seen += !sampled[c->handle.index / FT_SEG_COUNTERS];
				sampled[c->handle.index / FT_SEG_COUNTERS] = 1;
			}
		}
		if (err) break;
		const uint64_t done = ft_acquire(ft_word(r.base, FT_HDR_CYCLE_DONE));
		err = ft_snapshot_take(&snap);
		if (err == FT_ERR_BUSY) err = FT_OK;
		else if (!err) {
			snapshots++;
			mixed += snap.cycle_max != 0 && snap.cycle_min < done;
		}
		segments = ft_capacity(&r) / FT_SEG_COUNTERS;
	}
	printf("reads %" PRIu64 " segments %" PRIu32 " torn %" PRIu64 " late %" PRIu64 " busy %" PRIu64 " absent %" PRIu64
	       " snapshots %" PRIu64 " mixed %" PRIu64 " result %d\n",
	       reads, segments, torn, late, busy, absent, snapshots, mixed, err);
	ft_snapshot_close(&snap);
	ft_close(&r);
	return err || torn || late || mixed;
}
