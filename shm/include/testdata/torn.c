/* A reader at full speed. The writer keeps, in every counter and at every
 * instant, bytes == 1500 * packets and sampled_at == 10 * packets + 1, and
 * packets never fall. Every read is checked.
 *
 *     torn PATH READS SECONDS CHANGES NAME...
 *
 * ends after READS loads, SECONDS and CHANGES new values, whichever comes last,
 * or after SECONDS + 180 (with a snapshot and
 * the history's news in between), prints how many it made, how many of them saw
 * a new value and how many were torn, and exits 1 when any was. */
#include "flowtally.h"

#include <inttypes.h>
#include <stdio.h>

enum { COUNTERS = 64 };

static int whole(const ft_value *v) {
	return v->sampled_at == 0 ? v->packets == 0 && v->bytes == 0
				  : v->bytes == 1500 * v->packets && (uint64_t)v->sampled_at == 10 * v->packets + 1;
}

int main(int argc, char **argv) {
	static ft_counter c[COUNTERS];
	static ft_handle h[COUNTERS];
	static uint64_t last[COUNTERS];
	uint64_t reads = 0, changes = 0, torn = 0, back = 0, busy = 0, snapshots = 0, records = 0, positions = 0;
	const int n = argc - 5 < COUNTERS ? argc - 5 : COUNTERS;
	ft_reader r;
	ft_snapshot snap;
	ft_cursor cur;
	if (n < 1) return 2;
	const uint64_t want = strtoull(argv[2], NULL, 10);
	const int64_t end = ft_now() + (int64_t)(strtod(argv[3], NULL) * 1e9), limit = end + 180 * INT64_C(1000000000);
	const uint64_t enough = strtoull(argv[4], NULL, 10);
	int err = ft_open(&r, argv[1], NULL);
	for (int i = 0; !err && i < n; i++)
		if (!(err = ft_lookup(&r, argv[5 + i], &h[i]))) err = ft_counter_open(&r, h[i], &c[i]);
	if (!err) err = ft_snapshot_open(&snap, &r, h, (size_t)n);
	if (!err) err = ft_cursor_open(&cur, &r, 0);
	if (err) {
		fprintf(stderr, "%s: %s\n", argv[1], ft_strerror(err));
		return 2;
	}
	const uint64_t start = cur.seen;
	while (reads < want || ft_now() < end || (changes < enough && ft_now() < limit)) {
		for (int k = 0; k < 1000; k++) {
			for (int i = 0; i < n; i++) {
				ft_value v;
				err = ft_load(&c[i], &v);
				if (err == FT_ERR_BUSY) {
					busy++;
					continue;
				}
				if (err) goto broken;
				reads++;
				torn += !whole(&v);
				back += v.packets < last[i];
				changes += v.packets != last[i];
				last[i] = v.packets;
			}
		}
		err = ft_snapshot_take(&snap);
		if (err == FT_ERR_BUSY)
			busy++;
		else if (err)
			goto broken;
		else
			snapshots++;
		for (int i = 0; !err && i < n; i++) {
			ft_value v;
			if ((err = ft_snapshot_get(&snap, h[i], &v))) goto broken;
			torn += !whole(&v);
		}
		ft_record rec;
		for (int k = 0; k < 1000 && (err = ft_cursor_next(&cur, &rec)) != FT_EMPTY; k++) {
			if (err == FT_ERR_BUSY) break;
			if (err) goto broken;
			records++;
			torn += !whole(&rec.value);
			positions += rec.position != start + records + cur.lost;
		}
	}
	printf("reads %" PRIu64 " changes %" PRIu64 " torn %" PRIu64 " back %" PRIu64 " busy %" PRIu64 " snapshots %" PRIu64 " records %" PRIu64
	       " lost %" PRIu64 " misplaced %" PRIu64 "\n",
	       reads, changes, torn, back, busy, snapshots, records, cur.lost, positions);
	return torn || back || positions ? 1 : 0;
broken:
	fprintf(stderr, "reading: %d %s\n", err, ft_strerror(err));
	return 2;
}
