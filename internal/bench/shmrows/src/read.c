/* The C side of shm.read.c. Started pinned to one CPU as
 *
 *     read CPU MIRROR NAME
 *
 * it replies to lines "ours N" and "ref N" with the nanoseconds of its thread's
 * CPU time that one of N reads took. Both loops are of one form: a counter is
 * read through a handle. They are spelt out, as a floor should be. */
#include "flowtally.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>

/* A counter as it would be if no read could be torn and no slot reused. */
struct bare_words {
	uint64_t packets, bytes, sampled_at, pad[5];
};
struct bare {
	const struct bare_words *current;
};
static inline int bare_load(const struct bare *c, ft_value *out) {
	const struct bare_words *w = c->current;
	out->packets = __atomic_load_n(&w->packets, __ATOMIC_ACQUIRE);
	out->bytes = __atomic_load_n(&w->bytes, __ATOMIC_ACQUIRE);
	out->sampled_at = (int64_t)__atomic_load_n(&w->sampled_at, __ATOMIC_ACQUIRE);
	return FT_OK;
}

static uint64_t sink;

__attribute__((noinline)) static int ours(ft_counter *c, uint64_t n) {
	uint64_t packets = 0, bytes = 0, sampled_at = 0;
	for (uint64_t i = 0; i < n; i++) {
		ft_value v;
		const int err = ft_load(c, &v);
		if (err) return err;
		packets += v.packets;
		bytes += v.bytes;
		sampled_at += (uint64_t)v.sampled_at;
	}
	sink += packets ^ bytes ^ sampled_at;
	return FT_OK;
}

__attribute__((noinline)) static int ref(const struct bare *c, uint64_t n) {
	uint64_t packets = 0, bytes = 0, sampled_at = 0;
	for (uint64_t i = 0; i < n; i++) {
		ft_value v;
		const int err = bare_load(c, &v);
		if (err) return err;
		packets += v.packets;
		bytes += v.bytes;
		sampled_at += (uint64_t)v.sampled_at;
	}
	sink += packets ^ bytes ^ sampled_at;
	return FT_OK;
}

static double cpu_time(void) {
	struct timespec t;
	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char **argv) {
	static struct bare_words words;
	const struct bare bare = {&words};
	ft_reader r;
	ft_handle h;
	ft_counter c;
	cpu_set_t set;
	if (argc != 4) return 2;
	CPU_ZERO(&set);
	CPU_SET(strtoul(argv[1], NULL, 10), &set);
	if (sched_setaffinity(0, sizeof set, &set) != 0) {
		perror("pinning");
		return 1;
	}
	int err = ft_open(&r, argv[2], NULL);
	if (!err) err = ft_lookup(&r, argv[3], &h);
	if (!err) err = ft_counter_open(&r, h, &c);
	if (err) {
		fprintf(stderr, "%s: %s\n", argv[2], ft_strerror(err));
		return 1;
	}
	char which[8];
	uint64_t n;
	while (scanf("%7s %" SCNu64, which, &n) == 2) {
		const double start = cpu_time();
		err = which[0] == 'o' ? ours(&c, n) : ref(&bare, n);
		const double took = cpu_time() - start;
		if (err) {
			fprintf(stderr, "reading: %s\n", ft_strerror(err));
			return 1;
		}
		printf("%.6f\n", took / (double)n);
		fflush(stdout);
	}
	ft_close(&r);
	return sink == 1; /* never, but the compiler cannot know */
}
