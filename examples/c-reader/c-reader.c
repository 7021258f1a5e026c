/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints counters of a flowtally mirror every so often:
 *
 *     c-reader [-i SECONDS] [-n TIMES] MIRROR NAME...
 *
 * MIRROR is the name of an instance, or a path. It needs no privilege and no plugin. It
 * goes on when the mirror grows, and when the writer dies, which it prints, and follows
 * the name to a file that was made anew. */
#include "flowtally.h"

#include <inttypes.h>
#include <stdio.h>

struct counter {
	const char *name;
	ft_named at;
	const char *units[2]; /* of its two values */
};

/* Finds the counter, and the names of its values. */
static void resolve(const ft_reader *r, struct counter *c) {
	ft_handle h;
	ft_entry e;
	(void)ft_named_open(r, c->name, &c->at); /* ft_named_load looks again for a missing counter */
	const int known = ft_lookup(r, c->name, &h) == FT_OK && ft_get_entry(r, h.index, &e) == FT_OK;
	const int completions = known && strcmp(e.kind, "completion") == 0;
	c->units[0] = completions ? "completions" : "packets";
	c->units[1] = completions ? "errors" : "bytes";
}

static void print(const ft_reader *r, struct counter *c) {
	ft_value v;
	int err = ft_named_load(r, &c->at, &v);
	if (err == FT_ERR_NO_COUNTER) resolve(r, c); /* for the next time */
	if (err) {
		printf("%s: %s\n", c->name, ft_strerror(err));
	} else if (v.sampled_at == 0) {
		printf("%s: not sampled yet\n", c->name);
	} else {
		printf("%s: %" PRIu64 " %s, %" PRIu64 " %s, %.3f s old\n", c->name, v.packets, c->units[0], v.bytes, c->units[1],
		       (double)(ft_now() - v.sampled_at) / 1e9);
	}
}

/* Prints the state of the writer. */
static void print_writer(const ft_status *s) {
	const double age = (double)s->age / 1e9;
	if (s->alive)
		printf("writer: %s, heartbeat %.3f s ago\n", ft_state_name(s->state), age);
	else if (s->state == FT_HALT || s->state == FT_FAIL)
		printf("writer: ended in state %s %.3f s ago; these are its last values\n", ft_state_name(s->state), age);
	else
		printf("writer: gone, no heartbeat for %.3f s; these are its last values\n", age);
}

int main(int argc, char **argv) {
	double interval = 1;
	long times = -1;
	int option;
	while ((option = getopt(argc, argv, "i:n:")) != -1) {
		switch (option) {
		case 'i': interval = strtod(optarg, NULL); break;
		case 'n': times = strtol(optarg, NULL, 10); break;
		default: return 2;
		}
	}
	if (argc - optind < 2 || !(interval > 0 && interval < 86400)) {
		fprintf(stderr, "usage: %s [-i SECONDS] [-n TIMES] MIRROR NAME...\n", argv[0]);
		return 2;
	}
	const char *path = argv[optind];
	const size_t n = (size_t)(argc - optind - 1);
	ft_reader r;
	int err = ft_guard_sigbus();
	if (!err) err = strchr(path, '/') ? ft_open(&r, path, NULL) : ft_open_instance(&r, path, NULL);
	if (err) {
		fprintf(stderr, "%s: %s%s%s\n", path, ft_strerror(err), err == FT_ERR_SYSTEM ? ": " : "",
			err == FT_ERR_SYSTEM ? strerror(errno) : "");
		return 1;
	}
	struct counter *counters = (struct counter *)calloc(n, sizeof *counters);
	if (counters == NULL) return 1;
	for (size_t i = 0; i < n; i++) {
		counters[i].name = argv[optind + 1 + (int)i];
		resolve(&r, &counters[i]);
	}
	for (; times != 0; times -= times > 0) {
		ft_status s;
		/* Below 0: no other file has the name yet, and the last values stay. */
		if (ft_follow(&r) == FT_FOLLOWED) {
			for (size_t i = 0; i < n; i++) resolve(&r, &counters[i]);
			printf("mirror: following to the file that took its name\n");
		}
		err = ft_get_status(&r, &s);
		for (size_t i = 0; i < n; i++) print(&r, &counters[i]);
		if (err)
			printf("mirror: %s\n", ft_strerror(err));
		else
			print_writer(&s);
		fflush(stdout);
		if (times == 1) break;
		const struct timespec pause = {(time_t)interval, (long)((interval - (double)(time_t)interval) * 1e9)};
		(void)nanosleep(&pause, NULL);
	}
	free(counters);
	ft_close(&r);
	return 0;
}
