/* A device and a reader of its words, each a process of its own.
 *
 *     device count SEGMENT OPS LIMIT      the device: has the segment and nothing else
 *     device read MIRROR OPS BASE         reads through the catalogue, while the mirror grows
 *
 * The device counts in slot 0 and notes behind each step in slot 1, which serves no
 * counter, how far it is; it does not run ahead of the writer by more than half of a
 * word's values. The reader holds each load against that note. */
#include "flowtally_device.h"

#include <inttypes.h>
#include <stdio.h>

static int fail(const char *what, int err) {
	fprintf(stderr, "%s: %d %s\n", what, err, ft_strerror(err));
	return 1;
}

static pid_t parent;
static void end_with_parent(void) {
	if (getppid() != parent) _exit(3);
}

static void count(uint64_t *word, uint64_t limit) {
	const uint64_t now = __atomic_load_n(word, __ATOMIC_RELAXED);
	__atomic_store_n(word, now == limit ? 0 : now + 1, __ATOMIC_RELEASE);
}

static int run_device(const char *path, uint64_t ops, uint64_t limit) {
	const int fd = open(path, O_RDWR);
	struct stat st;
	if (fd < 0 || fstat(fd, &st) != 0) return fail(path, FT_ERR_SYSTEM);
	void *p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) return fail(path, FT_ERR_SYSTEM);
	uint64_t *slot = (uint64_t *)(void *)((char *)p + FT_DEVICE_HEADER_SIZE), *note = slot + FT_DSL_SIZE / 8;
	const uint64_t *seen = slot + FT_DSL_SEEN / 8, start = ft_acquire(seen);
	const struct timespec moment = {0, 20000};
	for (uint64_t n = 1; n <= ops; n++) {
		while (start + n - ft_acquire(seen) > limit / 2) {
			end_with_parent();
			(void)nanosleep(&moment, NULL);
		}
		count(&slot[0], limit);
		__atomic_store_n(&note[0], n, __ATOMIC_RELEASE);
		if (n % 16 != 0) continue;
		count(&slot[1], limit);
		__atomic_store_n(&note[1], n / 16, __ATOMIC_RELEASE);
	}
	return 0;
}

/* Loads d between two looks at the note. */
static int bracket(const ft_device *d, const uint64_t *note, uint64_t base, uint64_t *done) {
	uint64_t completions, errors;
	const uint64_t low[2] = {ft_acquire(&note[0]), ft_acquire(&note[1])};
	const int err = ft_device_load(d, &completions, &errors);
	/* And one that was counted, and is not noted yet. */
	const uint64_t high[2] = {ft_acquire(&note[0]) + 1, ft_acquire(&note[1]) + 1};
	if (err) return fail("load", err);
	*done = completions - base;
	if (*done >= low[0] && *done <= high[0] && errors >= low[1] && errors <= high[1]) return 0;
	fprintf(stderr, "read %" PRIu64 " and %" PRIu64 ", the device was from %" PRIu64 " and %" PRIu64 " to %" PRIu64 " and %" PRIu64 "\n",
		*done, errors, low[0], low[1], high[0], high[1]);
	return 1;
}

static int run_reader(const char *path, uint64_t ops, uint64_t base) {
	ft_reader r;
	ft_device_segment s;
	ft_device first, d;
	ft_handle h;
	ft_status st;
	uint64_t done = 0, loads = 0;
	uint32_t segments = 0;
	int err = ft_open(&r, path, NULL);
	if (err) return fail(path, err);
	if ((err = ft_device_open(&s, &r, NULL))) return fail("segment", err);
	if ((err = ft_lookup(&r, "qp", &h))) return fail("lookup", err);
	if ((err = ft_device_attach(&s, &r, h, &first))) return fail("attach", err);
	const uint64_t *note = ft_word(s.base, FT_DEVICE_HEADER_SIZE + FT_DSL_SIZE);
	for (;;) {
		end_with_parent();
		if ((err = ft_get_status(&r, &st))) return fail("status", err);
		if (st.segments != segments) { /* it grew: the words are found as before */
			segments = st.segments;
			if ((err = ft_device_attach(&s, &r, h, &d))) return fail("attach", err);
			printf("segments %" PRIu32 "\n", segments);
			(void)fflush(stdout);
		}
		for (int i = 0; i < 64 && done < ops; i++, loads++)
			if (bracket(&d, note, base, &done) || bracket(&first, note, base, &done)) return 1;
		if (done == ops) {
			printf("loads %" PRIu64 "\n", loads);
			ft_device_close(&s);
			ft_close(&r);
			return 0;
		}
	}
}

int main(int argc, char **argv) {
	if (argc != 5) return 2;
	parent = getppid();
	(void)alarm(180); /* longer than any test takes */
	const uint64_t ops = strtoull(argv[3], NULL, 10), number = strtoull(argv[4], NULL, 10);
	if (strcmp(argv[1], "count") == 0) return run_device(argv[2], ops, number);
	return run_reader(argv[2], ops, number);
}
