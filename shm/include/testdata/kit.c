/* Replies to the questions of the conformance kit (shm/testdata/conformance/README.md)
 * through the C reader: kit PATH, a question on each line of standard input, a reply in
 * JSON on each line of standard output. */
#include "flowtally.h"
#include "flowtally_live.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { NAMES = 32 };

static struct {
	char name[64];
	ft_counter counter;
} found[NAMES];

static void print_error(int err) {
	const char *name = "refused";
	switch (err) {
	case FT_ERR_STALE: name = "stale"; break;
	case FT_ERR_GONE:
	case FT_ERR_NO_COUNTER: name = "gone"; break;
	case FT_ERR_BUSY:
	case FT_ERR_WORN: name = "busy"; break;
	case FT_ERR_ARGUMENT: name = "not-open"; break;
	case FT_ERR_NO_LIVE: name = "no-live"; break;
	default: break;
	}
	printf("{\"error\":\"%s\"}", name);
}

static void print_value(int err, const ft_value *v) {
	if (err)
		print_error(err);
	else
		printf("{\"packets\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"sampled_at\":%" PRId64 "}", v->packets, v->bytes,
		       v->sampled_at);
}

static ft_counter *counter_of(const char *name, int make) {
	for (int i = 0; i < NAMES; i++)
		if (strcmp(found[i].name, name) == 0) return &found[i].counter;
	for (int i = 0; make && i < NAMES; i++)
		if (found[i].name[0] == 0) {
			snprintf(found[i].name, sizeof found[i].name, "%s", name);
			return &found[i].counter;
		}
	return NULL;
}

static void find(const ft_reader *r, const char *name) {
	ft_handle h;
	ft_counter c;
	int err = ft_lookup(r, name, &h);
	if (!err) err = ft_counter_open(r, h, &c);
	if (err) {
		print_error(err);
		return;
	}
	ft_counter *place = counter_of(name, 1);
	if (place != NULL) *place = c;
	printf("{\"index\":%" PRIu32 ",\"generation\":%" PRIu32 "}", h.index, h.generation);
}

static void load(const char *name) {
	ft_value v;
	ft_counter *c = counter_of(name, 0);
	print_value(c == NULL ? FT_ERR_ARGUMENT : ft_load(c, &v), &v);
}

/* Opens the map in which the kernel of the kit counts, as README.md describes it. */
static int kit_map(ft_live_map *m) {
	enum { CPUS = 2, COUNTERS = 4 };
	static uint64_t words[2 * CPUS * COUNTERS + 1];
	uint32_t message[FT_LIVE_SIZE / 4] = {0};
	const uint64_t stride = 16 * COUNTERS;
	for (uint64_t i = 0; i < CPUS * COUNTERS; i++) {
		const uint64_t packets = 100 * (i / COUNTERS + 1) + i % COUNTERS;
		words[2 * i] = packets;
		words[2 * i + 1] = (64 * packets << 8) + packets;
	}
	words[2 * CPUS * COUNTERS] = 3;
	memcpy(message, "FLOWLIVE", 8);
	message[FT_LVM_VERSION / 4] = 1;
	message[FT_LVM_BYTE_ORDER / 4] = 0x01020304;
	message[FT_LVM_MAP / 4] = 7;
	message[FT_LVM_CPUS / 4] = CPUS;
	message[FT_LVM_COUNTERS / 4] = COUNTERS;
	memcpy((char *)message + FT_LVM_STRIDE, &stride, sizeof stride);
	return ft_live_open_memory(m, message, words, sizeof words);
}

static void live(const ft_reader *r, const char *name) {
	ft_live_map m;
	ft_live_counter l;
	uint64_t packets = 0, bytes = 0;
	const ft_counter *c = counter_of(name, 0);
	int err = c == NULL ? FT_ERR_ARGUMENT : kit_map(&m);
	if (!err) err = ft_live_attach(&m, r, c->handle, &l);
	if (!err) err = ft_live(&l, &packets, &bytes);
	if (err)
		print_error(err);
	else
		printf("{\"packets\":%" PRIu64 ",\"bytes\":%" PRIu64 "}", packets, bytes);
}

static void status(const ft_reader *r) {
	ft_status st;
	const int err = ft_get_status(r, &st);
	if (err) {
		print_error(err);
		return;
	}
	printf("{\"state\":\"%s\",\"generation\":%" PRIu64 ",\"takeovers\":%" PRIu64 ",\"cycle\":%" PRIu64
	       ",\"counters_used\":%" PRIu32 ",\"records_used\":%" PRIu32 "}",
	       ft_state_name(st.state), st.generation, st.takeovers, st.cycle_done, st.counters_used, st.records_used);
}

static void print_entry(const ft_entry *e) {
	printf("{\"index\":%" PRIu32 ",\"generation\":%" PRIu32 ",\"name\":\"%s\",\"kind\":\"%s\",\"unit\":\"%s\",\"text\":\"%s\""
	       ",\"source\":\"%s\",\"byte_basis\":\"%s\",\"valid\":%s,\"stale\":%s,\"ambiguous\":%s,\"discontinuities\":%" PRIu64,
	       e->handle.index, e->handle.generation, e->name, e->kind, e->unit, e->text, e->source, e->byte_basis,
	       e->valid ? "true" : "false", e->stale ? "true" : "false", e->ambiguous ? "true" : "false", e->discontinuities);
	printf(",\"labels\":{");
	for (const char *p = e->labels; *p; p += strlen(p) + 1)
		printf("%s\"%.*s\":\"%s\"", p == e->labels ? "" : ",", (int)strcspn(p, "="), p, strchr(p, '=') + 1);
	printf("}}");
}

/* The error of the first entry that cannot be read, or FT_OK. */
static int readable(const ft_reader *r) {
	ft_entry e;
	for (uint32_t i = 0; i < ft_capacity(r); i++) {
		const int err = ft_get_entry(r, i, &e);
		if (err && err != FT_ERR_NO_COUNTER) return err;
	}
	return FT_OK;
}

static void list(const ft_reader *r) {
	ft_entry e;
	const char *comma = "";
	const int err = readable(r);
	if (err) {
		print_error(err);
		return;
	}
	printf("[");
	for (uint32_t i = 0; i < ft_capacity(r); i++)
		if (ft_get_entry(r, i, &e) == FT_OK) {
			printf("%s", comma);
			print_entry(&e);
			comma = ",";
		}
	printf("]");
}

static void snapshot(const ft_reader *r) {
	ft_snapshot s;
	ft_entry e;
	ft_value v;
	int err = ft_snapshot_open(&s, r, NULL, 0);
	if (!err && (err = ft_snapshot_take(&s))) ft_snapshot_close(&s);
	if (err) {
		print_error(err);
		return;
	}
	printf("{\"min_cycle\":%" PRIu64 ",\"max_cycle\":%" PRIu64 ",\"oldest\":%" PRId64 ",\"newest\":%" PRId64 ",\"values\":{",
	       s.cycle_min, s.cycle_max, s.oldest, s.newest);
	const char *comma = "";
	for (uint32_t i = 0; i < ft_capacity(r); i++) {
		if (ft_get_entry(r, i, &e)) continue;
		printf("%s\"%s\":", comma, e.name);
		print_value(ft_snapshot_get(&s, e.handle, &v), &v);
		comma = ",";
	}
	printf("}}");
	ft_snapshot_close(&s);
}

static void history(ft_cursor *c) {
	ft_record rec[64];
	int n = 0, err = 0;
	while (n < 64 && !(err = ft_cursor_next(c, &rec[n]))) n++;
	if (err && err != FT_EMPTY && !(err == FT_ERR_STALE && n > 0)) { /* the last records first */
		print_error(err);
		return;
	}
	printf("{\"lost\":%" PRIu64 ",\"records\":[", c->lost);
	for (int i = 0; i < n; i++) {
		printf("%s{\"position\":%" PRIu64 ",\"index\":%" PRIu32 ",\"generation\":%" PRIu32 ",\"cycle\":%" PRIu64 ",\"value\":",
		       i ? "," : "", rec[i].position, rec[i].handle.index, rec[i].handle.generation, rec[i].cycle);
		print_value(FT_OK, &rec[i].value);
		printf("}");
	}
	printf("]}");
}

int main(int argc, char **argv) {
	static ft_reader r;
	ft_cursor cursor;
	char line[256];
	int open = 0;
	if (argc != 2) return 2;
	while (fgets(line, sizeof line, stdin)) {
		line[strcspn(line, "\n")] = 0;
		const char *name = strchr(line, ' ') ? strchr(line, ' ') + 1 : "";
		if (strcmp(line, "open") == 0) {
			int err = ft_open(&r, argv[1], NULL);
			open = !err;
			if (!err) err = ft_cursor_open(&cursor, &r, 1);
			if (err)
				print_error(err);
			else
				printf("{\"ok\":true}");
		} else if (!open)
			print_error(FT_ERR_ARGUMENT);
		else if (strncmp(line, "find ", 5) == 0)
			find(&r, name);
		else if (strncmp(line, "load ", 5) == 0)
			load(name);
		else if (strncmp(line, "live ", 5) == 0)
			live(&r, name);
		else if (strcmp(line, "status") == 0)
			status(&r);
		else if (strcmp(line, "list") == 0)
			list(&r);
		else if (strcmp(line, "snapshot") == 0)
			snapshot(&r);
		else if (strcmp(line, "history") == 0)
			history(&cursor);
		else
			return 2;
		printf("\n");
		fflush(stdout);
	}
	return 0;
}
