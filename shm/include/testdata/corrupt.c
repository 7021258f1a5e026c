/* Reads damaged mirrors: to be compiled with the address and undefined-behaviour
 * sanitizers.
 *
 *     corrupt PATH SEGMENT SEED ROUNDS
 *
 * Every round takes the file at PATH, and the segment of words that devices write, in
 * memory, damages them, calls every function of the reader, and mends them. The bytes
 * that were cut off are poisoned for the sanitizer. A third of the damage goes to the
 * immutable header under a checksum that is made right again, so that the code behind
 * it is reached. Prints how many of the rounds attached. */
#include "everything.h"

#include <inttypes.h>
#include <stdio.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

/* A file in memory, and the ranges that were damaged. */
struct image {
	unsigned char *p, *whole;
	size_t size, dirty[64][2];
	int n;
};

/* n bytes at an offset are about to change. */
static unsigned char *touch(struct image *m, size_t at, size_t n) {
	if (m->n == 64) exit(3);
	m->dirty[m->n][0] = at;
	m->dirty[m->n++][1] = at + n < m->size ? at + n : m->size;
	return m->p + at;
}

static void store(struct image *m, size_t at, uint64_t v, size_t n) { memcpy(touch(m, at, n), &v, n); }

static void cut(const struct image *m, size_t left) {
#ifdef __SANITIZE_ADDRESS__
	__asan_poison_memory_region(m->p + left, m->size - left);
#else
	(void)m, (void)left;
#endif
}

static void mend(struct image *m) {
#ifdef __SANITIZE_ADDRESS__
	__asan_unpoison_memory_region(m->p, m->size);
#endif
	for (; m->n > 0; m->n--) {
		const size_t at = m->dirty[m->n - 1][0], end = m->dirty[m->n - 1][1];
		memcpy(m->p + at, m->whole + at, end - at);
	}
}

/* An offset, a multiple of 8, where a mirror with few counters holds something. */
static size_t somewhere(const struct image *m) {
	const size_t ring = FT_HEADER_SIZE, segment = 2 * (size_t)FT_HEADER_SIZE + next_random() % 2 * FT_SEG_SIZE;
	const struct {
		size_t at, length;
	} parts[] = {
		{512, 1024}, {FT_HDR_DESCRIPTORS, 32}, {ring, 32 * FT_HIS_SIZE}, {segment, 130 * FT_ENT_SIZE}, {segment, 8 * FT_ENT_SIZE},
		{segment + FT_SEG_SEQS, 512}, {segment + FT_SEG_INTENTS, 512}, {segment + FT_SEG_COPIES, 3 * FT_CPY_SIZE},
		{segment + FT_SEG_COPIES + 64 * FT_CPY_SIZE, 3 * FT_CPY_SIZE}, {0, m->size},
	};
	const size_t pick = next_random() % (sizeof parts / sizeof *parts);
	const size_t at = (parts[pick].at + next_random() % parts[pick].length) / 8 * 8;
	return at < m->size - 8 ? at : 512;
}

/* A word of damage: edges are likelier than chance makes them. */
static uint64_t nasty(void) {
	static const uint64_t edges[] = {0, 1, 63, 64, 65, 4095, 4096, 0x7fffffff, 0x80000000, 0xffffffff, 0x100000000,
					 0x7fffffffffffffff, 0x8000000000000000, 0xffffffffffffffff};
	const uint64_t pick = next_random();
	if (pick & 1) return edges[(pick >> 8) % (sizeof edges / sizeof *edges)];
	return pick & 2 ? next_random() : next_random() % 100000;
}

static void sum_to(struct image *m, size_t at) {
	if (at + 8 <= m->size) store(m, at, ft_checksum(m->p, at), 8);
}

/* Returns the size that is left. */
static size_t damage(struct image *m) {
	const uint64_t kind = next_random() % 6;
	const int times = 1 + (int)(next_random() % 8);
	size_t at;
	switch (kind) {
	case 0: /* bits, anywhere */
		for (int i = 0; i < times; i++) {
			at = next_random() & 1 ? somewhere(m) + (next_random() & 7) : next_random() % m->size;
			*touch(m, at, 1) ^= (unsigned char)(1u << (next_random() & 7));
		}
		return m->size;
	case 1: /* words, anywhere behind the immutable header */
		for (int i = 0; i < times * 4; i++)
			if ((at = somewhere(m)) >= 512) store(m, at, nasty(), 8);
		return m->size;
	case 2: /* the immutable header, checksum right */
	case 3:
		for (int i = 0; i < times; i++) {
			const size_t n = next_random() & 1 ? 4 : 8;
			store(m, 16 + next_random() % (FT_HDR_CHECKSUM - 24) / n * n, nasty(), n);
		}
		sum_to(m, FT_HDR_CHECKSUM);
		return m->size;
	case 4: /* cut short */
		return next_random() % (next_random() & 1 ? m->size : 4 * (size_t)FT_HEADER_SIZE);
	default: { /* a stretch of noise */
		const size_t n = next_random() % 5000;
		unsigned char *p = touch(m, at = next_random() & 1 ? somewhere(m) : next_random() % m->size, n);
		for (size_t i = 0; i < n && at + i < m->size; i++) p[i] = (unsigned char)next_random();
		if (next_random() & 1) sum_to(m, FT_HDR_CHECKSUM);
		return m->size;
	}
	}
}

/* The same for a segment: now and then cut, its header wrong, or words anywhere. */
static size_t damage_segment(struct image *m) {
	const uint64_t kind = next_random() % 4;
	if (kind == 0) return m->size;
	if (kind == 1) return next_random() % m->size;
	for (uint64_t n = next_random() % 6; n > 0; n--) {
		if (kind == 2)
			store(m, 16 + next_random() % 9 * 4, nasty(), 4);
		else
			store(m, FT_DEVICE_HEADER_SIZE + next_random() % ((m->size - FT_DEVICE_HEADER_SIZE) / 8) * 8, nasty(), 8);
	}
	sum_to(m, FT_DEV_CHECKSUM);
	return m->size;
}

/* The map of a live view: a message, and slots of CPUS CPUs with a word behind. */
enum { CPUS = 3, COUNTERS = 8, STRIDE = 16 * COUNTERS, MAP_SIZE = CPUS * STRIDE + 8 };

static void make_map(unsigned char *message, unsigned char *words) {
	const uint32_t head[] = {1, 0x01020304, 7, CPUS, COUNTERS};
	const uint64_t stride = STRIDE, epoch = 1;
	memset(message, 0, FT_LIVE_SIZE);
	memcpy(message, "FLOWLIVE", 8);
	memcpy(message + FT_LVM_VERSION, head, sizeof head);
	memcpy(message + FT_LVM_STRIDE, &stride, sizeof stride);
	memset(words, 0, MAP_SIZE);
	memcpy(words + CPUS * STRIDE, &epoch, sizeof epoch);
}

/* Now and then the message is wrong, or words of the map. */
static void damage_map(unsigned char *message, unsigned char *words) {
	const uint64_t kind = next_random() % 4;
	for (uint64_t n = next_random() % 4; n > 0 && kind != 0; n--) {
		const uint64_t v = nasty();
		if (kind == 1)
			memcpy(message + next_random() % (FT_LIVE_SIZE / 4) * 4, &v, 4);
		else
			memcpy(words + next_random() % (MAP_SIZE / 8) * 8, &v, 8);
	}
}

static void read_file(struct image *m, const char *path) {
	FILE *f = fopen(path, "rb");
	if (f == NULL || fseek(f, 0, SEEK_END) != 0) exit(2);
	m->size = (size_t)ftell(f);
	m->n = 0;
	m->whole = (unsigned char *)malloc(m->size);
	m->p = (unsigned char *)malloc(m->size);
	rewind(f);
	if (m->whole == NULL || m->p == NULL || fread(m->whole, 1, m->size, f) != m->size) exit(2);
	memcpy(m->p, m->whole, m->size);
	fclose(f);
}

int main(int argc, char **argv) {
	struct image mirror, segment;
	if (argc != 5) return 2;
	read_file(&mirror, argv[1]);
	read_file(&segment, argv[2]);
	state = strtoull(argv[3], NULL, 10) * 2 + 1;
	const long rounds = strtol(argv[4], NULL, 10);
	long attached = 0, segments = 0, maps = 0;
	unsigned char message[FT_LIVE_SIZE];
	unsigned char *words_of_map = (unsigned char *)malloc(MAP_SIZE);
	if (words_of_map == NULL) return 2;
	for (long i = 0; i < rounds; i++) {
		const size_t left = i == 0 ? mirror.size : damage(&mirror), words = i == 0 ? segment.size : damage_segment(&segment);
		ft_reader r;
		cut(&mirror, left);
		cut(&segment, words);
		if (ft_attach(&r, mirror.p, left) == FT_OK) {
			ft_device_segment s;
			attached++;
			everything(&r);
			if (ft_device_open_memory(&s, segment.p, words) == FT_OK) {
				segments++;
				all_words(&r, &s);
				ft_device_close(&s);
			}
			ft_live_map m;
			make_map(message, words_of_map);
			damage_map(message, words_of_map);
			if (ft_live_open_memory(&m, message, words_of_map, MAP_SIZE) == FT_OK) {
				maps++;
				all_live(&r, &m);
				ft_live_close(&m);
			}
			ft_close(&r);
		}
		mend(&mirror);
		mend(&segment);
	}
	printf("rounds %ld attached %ld segments %ld maps %ld read %ld sum %" PRIx64 "\n", rounds, attached, segments, maps, read_live, sink);
	free(words_of_map);
	free(mirror.p);
	free(mirror.whole);
	free(segment.p);
	free(segment.whole);
	return 0;
}
