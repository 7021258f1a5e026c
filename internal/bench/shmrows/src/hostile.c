/* SPDX-License-Identifier: Apache-2.0
 *
 * Tries to harm the processes that wait for a mirror, as another user:
 *     hostile MIRROR PAGE UID GID DIRECTORY [TRIES]
 *
 * Each try writes to the page, cuts it, punches a hole, gives it another name in
 * DIRECTORY, wakes and moves its sleepers: one system call each. Tries take turns between its
 * name, a descriptor and a mapping of the page. A user who cannot open the page has its name,
 * and a descriptor and a mapping of the mirror. After TRIES
 * it prints how many of each had an effect. Without TRIES it goes on from "begin 0" to
 * "end 0" on its input, and prints the tries so far. */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WAKE = 1, REQUEUE = 3 };

static const char *page;
static char another[PATH_MAX];
static uint32_t *words; /* of the page or the mirror, read-only */
static size_t length;
static int fd; /* of the page; -1: it cannot be opened */
static int mapped; /* fd, or a descriptor of the mirror */
static uint32_t own;
static uint64_t tries, written, cut, punched, linked, woken, moved;
static int going;

static long futex(uint32_t *word, int op, long a, long b, uint32_t *to) { return syscall(SYS_futex, word, op, a, b, to, 0); }

static void try(void) {
	static const char bytes[8] = {1, 2, 3, 4, 5, 6, 7, 8};
	const uint64_t n = __atomic_fetch_add(&tries, 1, __ATOMIC_RELAXED);
	if (n % 2 == 0) {
		const int writable = open(page, O_WRONLY | O_CLOEXEC);
		written += writable >= 0 && write(writable, bytes, sizeof bytes) > 0;
		if (writable >= 0) (void)close(writable);
	} else {
		written += pwrite(mapped, bytes, sizeof bytes, 64) > 0;
	}
	cut += (n % 2 == 0 ? ftruncate(mapped, 1 << 20) : truncate(page, 0)) == 0;
	punched += (n % 3 == 0   ? fallocate(mapped, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096)
		    : n % 3 == 1 ? fallocate(mapped, FALLOC_FL_KEEP_SIZE, 1 << 20, 1 << 20)
				 : madvise(words, 4096, MADV_REMOVE)) == 0;
	if (link(page, another) == 0) {
		linked++;
		(void)unlink(another);
	}
	/* The futex of the page, or each word of the mirror's header. */
	uint32_t *word = words + (fd >= 0 ? 16 : n % 1024);
	const long w = futex(word, WAKE, INT_MAX, 0, NULL), m = futex(word, REQUEUE, 0, INT_MAX, &own);
	woken += w > 0 ? (uint64_t)w : 0;
	moved += m > 0 ? (uint64_t)m : 0;
}

static void *go(void *none) {
	for (;;) {
		if (__atomic_load_n(&going, __ATOMIC_ACQUIRE))
			try();
		else
			(void)usleep(1000);
	}
	return none;
}

int main(int argc, char **argv) {
	if (argc != 6 && argc != 7) return 2;
	const uid_t uid = (uid_t)strtoul(argv[3], NULL, 10);
	const gid_t gid = (gid_t)strtoul(argv[4], NULL, 10);
	if (setgroups(0, NULL) != 0 || setresgid(gid, gid, gid) != 0 || setresuid(uid, uid, uid) != 0) {
		perror("hostile: becoming another user");
		return 1;
	}
	page = argv[2];
	(void)snprintf(another, sizeof another, "%s/hostile-%d", argv[5], (int)getpid());
	fd = open(page, O_RDONLY | O_CLOEXEC);
	mapped = fd >= 0 ? fd : open(argv[1], O_RDONLY | O_CLOEXEC);
	length = 4096;
	words = (uint32_t *)mmap(NULL, length, PROT_READ, MAP_SHARED, mapped, 0);
	if (words == MAP_FAILED) {
		perror("hostile: mapping");
		return 1;
	}
	if (argc == 7) {
		for (uint64_t n = strtoull(argv[6], NULL, 10); n > 0; n--) try();
		printf("tries %" PRIu64 " opened %d written %" PRIu64 " cut %" PRIu64 " punched %" PRIu64 " linked %" PRIu64 " woken %" PRIu64 " moved %" PRIu64 "\n",
			tries, fd >= 0, written, cut, punched, linked, woken, moved);
		return 0;
	}
	pthread_t thread;
	if (pthread_create(&thread, NULL, go, NULL) != 0) return 1;
	char command[16];
	int none;
	while (scanf("%15s %d", command, &none) == 2) {
		__atomic_store_n(&going, strcmp(command, "begin") == 0, __ATOMIC_RELEASE);
		printf("%" PRIu64 "\n", __atomic_load_n(&tries, __ATOMIC_RELAXED));
		(void)fflush(stdout);
	}
	return 0;
}
