/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints a line each time that a counter of a flowtally mirror has counted so many
 * more, and sleeps in between:
 *
 *     c-wait [-n TIMES] [-t SECONDS] MIRROR NAME EVERY
 *
 * MIRROR is the name of an instance, or a path. It ends after TIMES lines, or, with 1, when
 * SECONDS were too few for the next one, the counter is gone, or the writer has ended. The writer
 * wakes it: no timer runs and no processor is busy while no value changes.
 */
#include "flowtally_place.h"
#include "flowtally_wait.h"

#include <inttypes.h>
#include <stdio.h>

/* Goes on after FT_ERR_NOT_ALIVE or FT_ERR_STALE: in the file that has the mirror's name
 * now, where the counter's name is looked up again, or in the same file, if another writer
 * took it over. */
static int follow(ft_reader *r, const char *name, ft_handle *h) {
	/* A file is given up a moment before the next one has the name, and that one has the
	 * name a moment before the counter is in it. */
	int followed = 0, err = FT_ERR_STALE;
	for (int naps = 0; naps < 10000; naps++) {
		ft_status s;
		err = ft_follow(r);
		followed |= err == FT_FOLLOWED;
		if (followed) {
			err = ft_lookup(r, name, h);
			if (!err) printf("mirror: following to the file that took its name\n");
			if (err != FT_ERR_NO_COUNTER && err != FT_ERR_STALE && err != FT_ERR_BUSY) return err;
		} else if (err != FT_ERR_STALE) {
			err = ft_get_status(r, &s);
			return err ? err : s.alive ? FT_OK : FT_ERR_NOT_ALIVE;
		}
		const struct timespec nap = {0, 1000000};
		(void)nanosleep(&nap, NULL);
	}
	return err;
}

static int wait_for(ft_reader *r, const char *name, ft_handle *h, uint64_t threshold, int64_t timeout, ft_value *v) {
	int err;
	do {
		err = ft_wait(r, *h, threshold, timeout, v);
		if (err != FT_ERR_NOT_ALIVE && err != FT_ERR_STALE) return err;
		err = follow(r, name, h);
	} while (!err);
	return err;
}

int main(int argc, char **argv) {
	long times = -1;
	double seconds = -1;
	int option;
	while ((option = getopt(argc, argv, "n:t:")) != -1) {
		switch (option) {
		case 'n': times = strtol(optarg, NULL, 10); break;
		case 't': seconds = strtod(optarg, NULL); break;
		default: return 2;
		}
	}
	const uint64_t every = argc - optind == 3 ? strtoull(argv[optind + 2], NULL, 10) : 0;
	if (every == 0 || !(seconds < 1e9)) {
		fprintf(stderr, "usage: %s [-n TIMES] [-t SECONDS] MIRROR NAME EVERY\n", argv[0]);
		return 2;
	}
	const char *path = argv[optind], *name = argv[optind + 1];
	const int64_t timeout = seconds < 0 ? -1 : (int64_t)(seconds * 1e9);

	ft_reader r;
	ft_handle h;
	ft_value v;
	(void)setvbuf(stdout, NULL, _IOLBF, 0); /* a line is to be seen before the sleep, through a pipe too */
	int err = ft_guard_sigbus();
	if (!err) err = strchr(path, '/') ? ft_open(&r, path, NULL) : ft_open_instance(&r, path, NULL);
	if (err) {
		fprintf(stderr, "%s: %s%s%s\n", path, ft_strerror(err), err == FT_ERR_SYSTEM ? ": " : "",
			err == FT_ERR_SYSTEM ? strerror(errno) : "");
		return 1;
	}
	/* Waiting works without a wake too, only later: once per poll cycle. */
	const int wakeable = ft_wakeable(&r);
	if (wakeable != FT_OK) fprintf(stderr, "%s: looking once per poll cycle: %s\n", path, ft_strerror(wakeable));

	err = ft_lookup(&r, name, &h);
	/* Any value reaches 0, so this ends with the first sample. */
	if (!err) err = wait_for(&r, name, &h, 0, timeout, &v);
	while (!err && times != 0) {
		const uint64_t next = v.packets > UINT64_MAX - every ? UINT64_MAX : v.packets + every;
		printf("%s: %" PRIu64 ", waiting for %" PRIu64 "\n", name, v.packets, next);
		err = wait_for(&r, name, &h, next, timeout, &v);
		if (!err) times -= times > 0;
	}
	if (err)
		printf("%s: %s\n", name, ft_strerror(err));
	else
		printf("%s: %" PRIu64 "\n", name, v.packets);
	ft_close(&r);
	return err != FT_OK;
}
