/* Prints everything that a reader can learn about a mirror, one fact a line, tabs
 * between: the Go test prints the same through package shm and compares. */
#include "flowtally_device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(const char *what, int err) {
	fprintf(stderr, "%s: %d %s\n", what, err, ft_strerror(err));
	return 1;
}

static void print_labels(const char *list) {
	for (const char *p = list; *p; p += strlen(p) + 1) printf("%s%s", p == list ? "" : ";", p);
}

static void print_value(const char *kind, ft_handle h, int err, const ft_value *v) {
	printf("%s\t%" PRIu32 "\t%" PRIu32, kind, h.index, h.generation);
	if (err)
		printf("\t%d\n", err);
	else
		printf("\t%" PRIu64 "\t%" PRIu64 "\t%" PRId64 "\n", v->packets, v->bytes, v->sampled_at);
}

static int print_device(const ft_device_segment *s, const ft_reader *r, ft_handle h) {
	ft_device d;
	uint64_t completions = 0, errors = 0;
	int err = ft_device_attach(s, r, h, &d);
	if (err == FT_ERR_NO_DEVICE) return FT_OK;
	if (!err) err = ft_device_load(&d, &completions, &errors);
	if (!err)
		printf("device\t%" PRIu32 "\t%" PRIu32 "\t%" PRIu64 "\t%" PRIu64 "\n", h.index, h.generation, completions, errors);
	return err;
}

int main(int argc, char **argv) {
	ft_reader r;
	ft_status st;
	ft_snapshot snap;
	ft_cursor cur;
	ft_record rec;
	ft_device_segment seg;
	if (argc != 2 && argc != 3) return fail("usage: dump PATH [OWNER]", FT_ERR_ARGUMENT);
	ft_options options = {0, 0};
	if (argc == 3) {
		options.trust_owner = 1;
		options.owner = (uid_t)strtoul(argv[2], NULL, 10);
	}
	int err = ft_open(&r, argv[1], &options);
	if (err) return fail(argv[1], err);
	if ((err = ft_get_status(&r, &st))) return fail("status", err);
	printf("status\t%s\t%016" PRIx64 "\t%" PRIu64 "\t%" PRIu64 "\n", ft_state_name(st.state), st.generation, st.takeovers,
	       st.cycle_done);
	printf("fill\t%" PRIu32 "\t%" PRIu32 "\t%" PRIu32 "\t%" PRIu32 "\t%" PRIu64 "\n", st.counters, st.counters_used,
	       st.records, st.records_used, st.refused);
	printf("period\t%" PRId64 "\n", ft_poll_period(&r));
	printf("size\t%" PRIu32 "\t%" PRIu32 "\t%" PRIu32 "\t%016" PRIx64 "\t%d\n", st.segments, st.counter_limit,
	       st.record_limit, st.file, st.replaced != 0);
	if ((err = ft_snapshot_open(&snap, &r, NULL, 0))) return fail("snapshot", err);
	if ((err = ft_snapshot_take(&snap))) return fail("snapshot", err);
	printf("label\t%" PRIu64 "\t%" PRIu64 "\t%" PRId64 "\t%" PRId64 "\n", snap.cycle_min, snap.cycle_max, snap.oldest,
	       snap.newest);
	const int no_segment = ft_device_open(&seg, &r, &options);
	if (no_segment && no_segment != FT_ERR_NO_DEVICE) return fail("device segment", no_segment);
	for (uint32_t i = 0; i < ft_capacity(&r); i++) {
		ft_entry e;
		ft_counter c;
		ft_value v;
		ft_handle h;
		err = ft_get_entry(&r, i, &e);
		if (err == FT_ERR_NO_COUNTER) continue;
		if (err) return fail("entry", err);
		printf("entry\t%" PRIu32 "\t%" PRIu32 "\t%s\t%s\t%s\t%s\t%s\t%s\t%d%d%d\t%" PRIu64 "\t", i, e.handle.generation,
		       e.name, e.kind, e.unit, e.text, e.source, e.byte_basis, e.valid, e.stale, e.ambiguous,
		       e.discontinuities);
		print_labels(e.labels);
		printf("\n");
		if ((err = ft_lookup(&r, e.name, &h))) return fail(e.name, err);
		if (h.index != i || h.generation != e.handle.generation) return fail("lookup finds another counter", 0);
		if (!(err = ft_counter_open(&r, h, &c))) err = ft_load(&c, &v);
		print_value("load", h, err, &v);
		err = ft_snapshot_get(&snap, h, &v);
		print_value("snap", h, err, &v);
		if (!no_segment && (err = print_device(&seg, &r, h))) return fail("device", err);
		/* Handles of the generations before and after are never this counter's. */
		h.generation--;
		if (ft_counter_open(&r, h, &c) != FT_ERR_GONE || ft_snapshot_get(&snap, h, &v) != FT_ERR_GONE)
			return fail("an old generation was read", 0);
		h.generation += 2;
		if (ft_counter_open(&r, h, &c) != FT_ERR_GONE || ft_snapshot_get(&snap, h, &v) != FT_ERR_GONE)
			return fail("a future generation was read", 0);
	}
	if ((err = ft_cursor_open(&cur, &r, 1))) return fail("history", err);
	while (!(err = ft_cursor_next(&cur, &rec)))
		printf("history\t%" PRIu64 "\t%" PRIu32 "\t%" PRIu32 "\t%" PRId64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\n",
		       rec.position, rec.handle.index, rec.handle.generation, rec.value.sampled_at, rec.value.packets,
		       rec.value.bytes, rec.cycle);
	if (err != FT_EMPTY) return fail("history", err);
	if (!no_segment) ft_device_close(&seg);
	ft_snapshot_close(&snap);
	ft_close(&r);
	return 0;
}
