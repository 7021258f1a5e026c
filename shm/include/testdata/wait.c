/* SPDX-License-Identifier: Apache-2.0
 *
 * Waits as its arguments say, and prints the result:
 *   wait PATH NAME wakeable
 *   wait PATH NAME one THRESHOLD TIMEOUT
 *   wait PATH NAME change PACKETS BYTES SAMPLED_AT TIMEOUT
 *   wait PATH NAME many WAITS SEED        also every sleep that no wake ended
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static uint64_t waiting_for;
static unsigned long sleeps, woken;

/* In the place of the header's system call: the same, watched. */
static long watched(long number, const void *word, int op, uint32_t value, const struct timespec *until, const void *none, uint32_t bits) {
	const long result = syscall(number, word, op, value, until, none, bits);
	const int saved = errno;
	sleeps++;
	woken += result == 0;
	if (result != 0 && saved == ETIMEDOUT)
		printf("out %" PRIu64 " %lld\n", waiting_for, (long long)until->tv_sec * 1000000000 + until->tv_nsec);
	errno = saved;
	return result;
}
#define syscall watched
#include "flowtally_wait.h"
#undef syscall

static int many(const ft_reader *r, ft_handle h, uint64_t waits, uint64_t seed) {
	ft_value v;
	uint64_t last = 1;
	for (uint64_t i = 0; i < waits; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		const uint64_t threshold = waiting_for = last + 1 + (seed >> 33) % 8;
		const int err = ft_wait(r, h, threshold, -1, &v);
		if (err != FT_OK || v.packets < threshold || v.bytes != 1500 * v.packets) {
			printf("waiting for %" PRIu64 ": %d, %" PRIu64 " %" PRIu64 "\n", threshold, err, v.packets, v.bytes);
			return 1;
		}
		last = v.packets;
	}
	printf("waits %" PRIu64 " sleeps %lu woken %lu\n", waits, sleeps, woken);
	return 0;
}

int main(int argc, char **argv) {
	ft_reader r;
	ft_handle h;
	ft_value v, since;
	uint64_t a[4] = {0, 0, 0, 0};
	if (argc < 4) return 2;
	(void)alarm(120); /* the process that started it may be gone */
	for (int i = 4; i < argc && i < 8; i++) a[i - 4] = strtoull(argv[i], NULL, 10);
	int err = ft_guard_sigbus();
	if (!err) err = ft_open(&r, argv[1], NULL);
	if (!err) err = ft_lookup(&r, argv[2], &h);
	if (err) {
		fprintf(stderr, "%s: %s\n", argv[2], ft_strerror(err));
		return 1;
	}
	const char *mode = argv[3];
	int code = 0;
	if (strcmp(mode, "many") == 0) {
		code = many(&r, h, a[0], a[1]);
	} else if (strcmp(mode, "wakeable") == 0) {
		printf("%d\n", ft_wakeable(&r));
	} else {
		const int change = strcmp(mode, "change") == 0;
		const int64_t timeout = (int64_t)a[change ? 3 : 1];
		since.packets = a[0];
		since.bytes = a[1];
		since.sampled_at = (int64_t)a[2];
		waiting_for = a[0];
		const int64_t start = ft_now();
		err = change ? ft_wait_change(&r, h, &since, timeout, &v) : ft_wait(&r, h, a[0], timeout, &v);
		const int early = err == FT_ERR_TIMEOUT && ft_now() - start < timeout;
		printf("%d %" PRIu64 " %" PRIu64 " %" PRId64 "%s\n", err, v.packets, v.bytes, v.sampled_at, early ? " early" : "");
	}
	ft_close(&r);
	return code;
}
