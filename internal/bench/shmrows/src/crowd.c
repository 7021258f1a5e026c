/* SPDX-License-Identifier: Apache-2.0
 *
 * Many sleepers:
 *     crowd MIRROR COUNTER PROCESSES THREADS
 *
 * THREADS threads in each of PROCESSES processes sleep on a futex of their own, or in
 * ft_wait on the counter. Lines of the input say which; the reply is how many do:
 *     own 0        from the next time that they wake
 *     ours LIMIT   until the counter reaches LIMIT
 *     own, ours    may be asked again until the reply is PROCESSES * THREADS */
#include "flowtally_wait.h"

#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>

struct control {
	uint64_t limit; /* 0: sleep on own */
	uint32_t own;
	uint32_t sleep_on_own, sleep_on_ours;
};

static struct control *control;
static ft_reader reader;
static ft_handle handle;

static void *sleeper(void *none) {
	for (;;) {
		const uint32_t own = __atomic_load_n(&control->own, __ATOMIC_SEQ_CST);
		const uint64_t limit = __atomic_load_n(&control->limit, __ATOMIC_SEQ_CST);
		if (limit == 0) {
			__atomic_add_fetch(&control->sleep_on_own, 1, __ATOMIC_SEQ_CST);
			while (__atomic_load_n(&control->own, __ATOMIC_SEQ_CST) == own) (void)ft_futex_wait(&control->own, own, INT64_MAX, UINT32_MAX);
			__atomic_sub_fetch(&control->sleep_on_own, 1, __ATOMIC_SEQ_CST);
		} else {
			ft_value v;
			__atomic_add_fetch(&control->sleep_on_ours, 1, __ATOMIC_SEQ_CST);
			const int err = ft_wait(&reader, handle, limit, -1, &v);
			__atomic_sub_fetch(&control->sleep_on_ours, 1, __ATOMIC_SEQ_CST);
			if (err) return none;
		}
	}
}

static void process(int threads) {
	pthread_attr_t small;
	(void)pthread_attr_init(&small);
	(void)pthread_attr_setstacksize(&small, 64 * 1024 > PTHREAD_STACK_MIN ? 64 * 1024 : PTHREAD_STACK_MIN);
	for (int i = 0; i < threads; i++) {
		pthread_t t;
		if (pthread_create(&t, &small, sleeper, NULL) != 0) _exit(1);
	}
	for (;;) (void)pause();
}

int main(int argc, char **argv) {
	if (argc != 5) return 2;
	control = (struct control *)mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int err = ft_open(&reader, argv[1], NULL);
	if (!err) err = ft_lookup(&reader, argv[2], &handle);
	if (!err) err = ft_wakeable(&reader);
	if (err || control == MAP_FAILED) {
		fprintf(stderr, "%s\n", ft_strerror(err));
		return 1;
	}
	const int processes = atoi(argv[3]), threads = atoi(argv[4]);
	for (int i = 0; i < processes; i++) {
		const pid_t child = fork();
		if (child < 0) {
			perror("fork");
			return 1;
		}
		if (child == 0) {
			(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
			process(threads);
		}
	}
	char side[16];
	uint64_t limit;
	while (scanf("%15s %" SCNu64, side, &limit) == 2) {
		const int ours = strcmp(side, "ours") == 0;
		if (__atomic_load_n(&control->limit, __ATOMIC_SEQ_CST) != (ours ? limit : 0)) {
			__atomic_store_n(&control->limit, ours ? limit : 0, __ATOMIC_SEQ_CST);
			if (ours) {
				__atomic_add_fetch(&control->own, 1, __ATOMIC_SEQ_CST);
				(void)syscall(SYS_futex, &control->own, 1 /* FUTEX_WAKE */, INT_MAX, NULL, NULL, 0);
			}
		}
		printf("%" PRIu32 "\n", __atomic_load_n(ours ? &control->sleep_on_ours : &control->sleep_on_own, __ATOMIC_SEQ_CST));
		(void)fflush(stdout);
	}
	return 0;
}
