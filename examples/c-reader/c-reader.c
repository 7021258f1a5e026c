/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints counters of a flowtally mirror every so often:
 *
 *     c-reader [-i SECONDS] [-n TIMES] MIRROR NAME...
 *
 * MIRROR is the name of an instance, or the path of a file, which has a slash.
 * It needs no privilege and no plugin, goes on when the writer dies (and says
 * so), and follows the mirror to its next file when a larger one, or that of a
 * new writer, takes its name. */
#include "flowtally.h"

#include <inttypes.h>
#include <stdio.h>

struct counter {
	const char *name;
	ft_counter at;
	const char *units[2]; /* of its two values */
	int err;              /* FT_OK: at is resolved */
};

static void resolve(const ft_reader *r, struct counter *c) {
	ft_handle h;
	c->err = ft_lookup(r, c->name, &h);
	if (!c->err) c->err = ft_counter_open(r, h, &c->at);
	ft_entry e;
	const int completions = !c->err && ft_get_entry(r, h.index, &e) == FT_OK && strcmp(e.kind, "completion") == 0;
	c->units[0] = completions ? "completions" : "packets";
	c->units[1] = completions ? "errors" : "bytes";
}

static void print(const ft_reader *r, struct counter *c) {
	ft_value v;
	/* Not there, or removed: a counter of that name may have been added since. */
	if (c->err) resolve(r, c);
	if (!c->err) c->err = ft_load(&c->at, &v);
	if (c->err) {
		printf("%s: %s\n", c->name, ft_strerror(c->err));
	} else if (v.sampled_at == 0) {
		printf("%s: not sampled yet\n", c->name);
	} else {
		printf("%s: %" PRIu64 " %s, %" PRIu64 " %s, %.3f s old\n", c->name, v.packets, c->units[0], v.bytes, c->units[1],
		       (double)(ft_now() - v.sampled_at) / 1e9);
	}
}

/* Says how the writer is. */
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
	char located[4096];
	int err = ft_guard_sigbus();
	if (!err && strchr(path, '/') == NULL) {
		err = ft_locate(path, NULL, located, sizeof located);
		if (!err) path = located;
	}
	if (!err) err = ft_open(&r, path, NULL);
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
		err = ft_get_status(&r, &s);
		/* Another file has the name, if there is one: go on with that one. */
		if ((err || !s.alive) && (s.state == FT_SUPERSEDED || ft_moved(&r)) && ft_reopen(&r, NULL) == FT_OK) {
			for (size_t i = 0; i < n; i++) resolve(&r, &counters[i]);
			err = ft_get_status(&r, &s);
			if (s.state != FT_SUPERSEDED) printf("mirror: following to the file that took its name\n");
		}
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
