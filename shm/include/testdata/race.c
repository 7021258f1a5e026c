/* Reads a mirror that is damaged meanwhile, in every function: to be compiled with the
 * address and undefined-behaviour sanitizers.
 *
 *     race header PATH OPENS SEED EVERY    words change, and change back; one open in EVERY calls every function
 *     race cut PATH CUTS SEED              the file is cut short, and made whole again
 *     race meet PATH ROUNDS SEED           threads meet the same segments at the same time
 *
 * A fault ends it. Prints the results of the reader. */
#include "everything.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static int stop;
static int stopped(void) { return __atomic_load_n(&stop, __ATOMIC_RELAXED); }

struct file {
	const char *path;
	int fd;
	unsigned char *p;
	size_t size;
	size_t segment; /* offset of segment 0 */
	uint64_t seed;
};

static int open_file(struct file *f, const char *path) {
	struct stat st;
	f->path = path;
	f->fd = open(path, O_RDWR | O_CLOEXEC);
	if (f->fd < 0 || fstat(f->fd, &st) != 0) return 0;
	f->size = (size_t)st.st_size;
	void *at = mmap(NULL, f->size, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
	f->p = at == MAP_FAILED ? NULL : (unsigned char *)at;
	if (f->p != NULL) f->segment = f->size - f->size / FT_SEG_SIZE * FT_SEG_SIZE; /* the rest is less than a segment */
	return f->p != NULL;
}

/* ---- header -------------------------------------------------------------- */

/* Words that lead a reader: the immutable header, the number of segments and their
 * descriptors, the mark, the ring's words; in segment 0 the words of the first entry, and
 * the words that its block is published under. Segment 0 follows the history. */
enum { SEGMENT = 1 << 30 }; /* an offset in segment 0 */
static const size_t targets[] = {
	8, 12, 16, 20, 24, 28, 40, 44, 48, 52, 56, 60, 64, 120, 124, 648, 896, 912, 912, 912,
	8192, 8192, 8196, 8200, 8200, 8204, 8208, 1280, 1024, 1032,
	SEGMENT, SEGMENT + 4, SEGMENT + 24, SEGMENT + 64, SEGMENT + 160, SEGMENT + 704, SEGMENT + 4194304, SEGMENT + 4198400, SEGMENT + 4202520,
};
enum { TARGETS = sizeof targets / sizeof *targets };

/* Memory of the process that changes words and of the one that reads. */
struct board {
	uint64_t flips;         /* changes so far */
	uint64_t hits[TARGETS]; /* wrong words stored, by target */
};
static struct board *board;
static uint64_t flipped(void) { return __atomic_load_n(&board->flips, __ATOMIC_RELAXED); }

static uint32_t *target(const struct file *f, size_t at) {
	return (uint32_t *)(void *)(f->p + (at & SEGMENT ? f->segment : 0) + (at & ~(size_t)SEGMENT));
}

/* Stores wrong words, lets the reader run a little, and stores the right ones. Half of the
 * time they are the words of the ring together, which lead nowhere one by one. */
static void flip(const struct file *f) {
	static const uint32_t wrongs[] = {0, 1, 2, 3, 5, 64, 4095, 4097, 65536, 0x7fffffff, 0x80000000, 0xffffffff};
	static const size_t ring[] = {FT_HDR_HISTORY, FT_HDR_HISTORY_TAIL, FT_HDR_HISTORY_INTENT};
	uint64_t random = f->seed;
	for (uint64_t n = 1;; n++) {
		uint32_t *words[3], rights[3];
		for (int i = 0; i < 3; i++) {
			const size_t one = (random >> (33 + 8 * i)) % TARGETS;
			words[i] = target(f, random >> 63 ? ring[i] : targets[one]);
			if (i == 0 && !(random >> 63)) __atomic_add_fetch(&board->hits[one], 1, __ATOMIC_RELAXED);
		}
		const uint32_t wrong = wrongs[(random >> 20) % (sizeof wrongs / sizeof *wrongs)];
		const int count = random >> 63 ? 3 : 1;
		for (int i = 0; i < count; i++) {
			rights[i] = __atomic_load_n(words[i], __ATOMIC_RELAXED);
			__atomic_store_n(words[i], wrong, __ATOMIC_RELAXED);
		}
		__atomic_store_n(&board->flips, n, __ATOMIC_RELAXED);
		for (volatile unsigned wait = (unsigned)(random >> 8) % 2000; wait > 0; wait--) continue;
		for (int i = 0; i < count; i++) __atomic_store_n(words[i], rights[i], __ATOMIC_RELEASE);
		for (volatile unsigned wait = (unsigned)(random >> 12) % 2000; wait > 0; wait--) continue;
		random = random * 6364136223846793005u + 1442695040888963407u;
	}
}

/* The header and the ring alone. */
static void glance(const ft_reader *r) {
	ft_status st;
	ft_cursor cursor;
	ft_record record;
	(void)ft_get_status(r, &st);
	if (ft_cursor_open(&cursor, r, 1) == FT_OK && ft_cursor_next(&cursor, &record) == FT_OK) use(&record, sizeof record);
}

/* A counter by its name, as a program does first. */
static void little(const ft_reader *r) {
	ft_named n;
	ft_value v;
	glance(r);
	if (ft_named_open(r, "c17", &n) == FT_OK && ft_named_load(r, &n, &v) == FT_OK) use(&v, sizeof v);
}

/* One open in every calls everything, one in four reads a counter, the others look at the
 * header only, which maps no segment. The words are changed by a
 * process of its own: each munmap of a process interrupts the CPUs on which its other
 * threads run. */
static int race_header(struct file *f, uint64_t opens, uint64_t every) {
	uint64_t opened = 0, raced = 0, least = UINT64_MAX, refused[32] = {0};
	void *shared = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED) return 2;
	board = (struct board *)shared;
	const pid_t child = fork();
	if (child < 0) return 2;
	if (child == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		flip(f);
	}
	while (flipped() == 0) (void)sched_yield();
	uint64_t i = 0;
	/* More than asked for until both outcomes were seen: the other thread may not have run yet. */
	for (; i < opens || ((opened == 0 || opened == i) && i < 1000 * opens); i++) {
		ft_reader r;
		const uint64_t before = flipped();
		const int err = ft_open(&r, f->path, NULL);
		if (err) {
			refused[-err & 31]++;
			raced += flipped() != before;
			/* The other thread may have lost its processor beside a wrong word. */
			while (flipped() == before) (void)sched_yield();
			continue;
		}
		if (opened % every == 0)
			everything(&r);
		else if (opened % 4 == 0)
			little(&r);
		else
			glance(&r);
		opened++;
		ft_close(&r);
		raced += flipped() != before;
	}
	(void)kill(child, SIGKILL);
	(void)waitpid(child, NULL, 0);
	for (int t = 0; t < TARGETS; t++)
		if (board->hits[t] < least) least = board->hits[t];
	printf("opens %" PRIu64 " opened %" PRIu64 " raced %" PRIu64 " hits %" PRIu64 " flips %" PRIu64, i, opened, raced, least, flipped());
	for (int e = 0; e < 32; e++)
		if (refused[e]) printf(" refused(%d) %" PRIu64, -e, refused[e]);
	printf("\n");
	return 0;
}

/* ---- cut ----------------------------------------------------------------- */

/* Cuts the file, to nothing each eighth time, and writes it anew. */
static void *cut(void *with) {
	const struct file *f = (const struct file *)with;
	unsigned char *whole = (unsigned char *)malloc(f->size);
	uint64_t random = f->seed;
	if (whole == NULL) return NULL;
	memcpy(whole, f->p, f->size);
	while (!stopped()) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		const size_t left = random >> 61 == 0 ? 0 : (size_t)(random >> 20) % f->size;
		if (ftruncate(f->fd, (off_t)left) != 0) break;
		const struct timespec moment = {0, (long)((random >> 40) % 200000)};
		(void)nanosleep(&moment, NULL);
		if (pwrite(f->fd, whole + left, f->size - left, (off_t)left) != (ssize_t)(f->size - left)) break;
		const struct timespec whole_for = {0, (long)((random >> 30) % 2000000)};
		(void)nanosleep(&whole_for, NULL);
	}
	free(whole);
	return NULL;
}

/* Each function at least, until the cuts were noticed often enough. ft_load has no
 * check: its values are zeros then. */
static int race_cut(struct file *f, uint64_t cuts) {
	uint64_t rounds = 0, truncated = 0, opened = 0;
	pthread_t thread;
	if (ft_guard_sigbus() != FT_OK || pthread_create(&thread, NULL, cut, f) != 0) return 2;
	while (truncated < cuts) {
		ft_reader r;
		ft_status st;
		rounds++;
		if (ft_open(&r, f->path, NULL) != FT_OK) continue;
		opened++;
		int err = FT_OK;
		for (int i = 0; i < 100 && err != FT_ERR_TRUNCATED; i++) {
			everything(&r);
			err = ft_get_status(&r, &st);
		}
		truncated += err == FT_ERR_TRUNCATED;
		ft_close(&r);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	(void)pthread_join(thread, NULL);
	printf("rounds %" PRIu64 " opened %" PRIu64 " truncated %" PRIu64 "\n", rounds, opened, truncated);
	return 0;
}

/* ---- meet ---------------------------------------------------------------- */

enum { THREADS = 4 };

struct meeting {
	ft_reader r;
	pthread_barrier_t start;
	const unsigned char *seen[THREADS][64];
};
struct guest {
	struct meeting *m;
	int number;
};

static void *meet(void *with) {
	const struct guest *g = (const struct guest *)with;
	(void)pthread_barrier_wait(&g->m->start);
	for (uint32_t n = 0; n < ft_segments(&g->m->r) && n < 64; n++) {
		uint32_t kind = 0;
		if (ft_segment(&g->m->r, n, &g->m->seen[g->number][n], &kind) != FT_OK) return with;
	}
	return NULL;
}

/* How many mappings of the file this process has. */
static int mappings(const char *path) {
	char line[4096];
	int n = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	while (f && fgets(line, sizeof line, f)) n += strstr(line, path) != NULL;
	if (f) (void)fclose(f);
	return n;
}

static int race_meet(const char *path, uint64_t rounds) {
	static struct meeting m;
	const int before = mappings(path);
	for (uint64_t i = 0; i < rounds; i++) {
		pthread_t threads[THREADS];
		struct guest guests[THREADS];
		if (ft_open(&m.r, path, NULL) != FT_OK || pthread_barrier_init(&m.start, NULL, THREADS) != 0) return 2;
		for (int t = 0; t < THREADS; t++) {
			guests[t].m = &m;
			guests[t].number = t;
			if (pthread_create(&threads[t], NULL, meet, &guests[t]) != 0) return 2;
		}
		void *failed = NULL, *one;
		for (int t = 0; t < THREADS; t++) {
			(void)pthread_join(threads[t], &one);
			if (one) failed = one;
		}
		for (int t = 0; t < THREADS; t++)
			if (memcmp(m.seen[t], m.seen[0], sizeof m.seen[0]) != 0) failed = &m;
		/* One mapping each: the losers unmapped theirs. Neighbours may be one line. */
		if (failed || mappings(path) - before > 1 + (int)ft_segments(&m.r)) {
			printf("round %" PRIu64 ": threads see other segments, or mappings are left\n", i);
			return 1;
		}
		(void)pthread_barrier_destroy(&m.start);
		ft_close(&m.r);
	}
	printf("rounds %" PRIu64 " mappings left %d\n", rounds, mappings(path) - before);
	return mappings(path) != before;
}

int main(int argc, char **argv) {
	struct file f;
	if (argc != 5 && argc != 6) return 2;
	const uint64_t n = strtoull(argv[3], NULL, 10);
	f.seed = strtoull(argv[4], NULL, 10);
	state = f.seed * 2 + 1;
	if (strcmp(argv[1], "meet") == 0) return race_meet(argv[2], n);
	if (!open_file(&f, argv[2])) return 2;
	return argc == 6 ? race_header(&f, n, strtoull(argv[5], NULL, 10)) : race_cut(&f, n);
}
