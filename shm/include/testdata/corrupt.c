/* Reads damaged mirrors: to be compiled with the address and undefined-behaviour
 * sanitizers.
 *
 *     corrupt PATH SEGMENT SEED ROUNDS
 *
 * Every round copies the file at PATH, and the segment of words that devices write, into memory of exactly the length that it
 * claims to have, damages it and does all that a reader can do. A third of the
 * damage goes to the immutable header under a checksum that is made right again,
 * so that what lies behind it is reached. Prints how many of the rounds attached. */
#include "flowtally_device.h"

#include <inttypes.h>
#include <stdio.h>

static uint64_t state;
static uint64_t next_random(void) { /* xorshift64* */
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * 0x2545f4914f6cdd1du;
}

static uint64_t sink;
static void use(const void *p, size_t n) {
	for (size_t i = 0; i < n; i++) sink += ((const unsigned char *)p)[i];
}

static void everything(const ft_reader *r) {
	ft_status st;
	(void)ft_get_status(r, &st);
	use(ft_state_name(st.state), 1);
	ft_handle some[8];
	size_t n_some = 0;
	for (uint32_t i = 0; i < ft_capacity(r); i++) {
		ft_entry e;
		ft_counter c;
		ft_value v;
		if (ft_get_entry(r, i, &e) != FT_OK) continue;
		for (const char *p = e.labels; *p; p += strlen(p) + 1) use(p, strlen(p));
		use(e.name, strlen(e.name));
		use(e.text, strlen(e.text));
		use(e.source, strlen(e.source));
		if (ft_counter_open(r, e.handle, &c) == FT_OK && ft_load(&c, &v) == FT_OK) use(&v, sizeof v);
		if (n_some < 8) some[n_some++] = e.handle;
	}
	ft_handle h = {(uint32_t)next_random(), 1};
	ft_counter c;
	(void)ft_counter_open(r, h, &c);
	(void)ft_lookup(r, "c1", &h);
	(void)ft_lookup(r, "no such counter", &h);
	for (int all = 0; all < 2; all++) {
		ft_snapshot s;
		if (ft_snapshot_open(&s, r, all ? NULL : some, n_some) != FT_OK) continue;
		(void)ft_snapshot_take(&s);
		for (uint32_t i = 0; i <= ft_capacity(r); i++) {
			ft_value v;
			h.index = i;
			h.generation = 1;
			if (ft_snapshot_get(&s, h, &v) == FT_OK) use(&v, sizeof v);
		}
		ft_snapshot_close(&s);
	}
	for (int oldest = 0; oldest < 2; oldest++) {
		ft_cursor cur;
		ft_record rec;
		if (ft_cursor_open(&cur, r, oldest) != FT_OK) continue;
		for (uint32_t i = 0; i < r->history_len + 2 && ft_cursor_next(&cur, &rec) != FT_EMPTY; i++) use(&rec, sizeof rec);
	}
}

static void all_words(const ft_reader *r, const ft_device_segment *s) {
	for (uint32_t i = 0; i < ft_capacity(r); i++) {
		const ft_handle h = {i, 1};
		ft_device d;
		uint64_t completions, errors;
		if (ft_device_attach(s, r, h, &d) == FT_OK && ft_device_load(&d, &completions, &errors) == FT_OK) sink += completions + errors;
	}
}

static void store(unsigned char *p, size_t at, uint64_t v, size_t n) { memcpy(p + at, &v, n); }

/* What a word of damage holds: edges are likelier than chance makes them. */
static uint64_t nasty(void) {
	static const uint64_t edges[] = {0, 1, 63, 64, 65, 4095, 4096, 0x7fffffff, 0x80000000, 0xffffffff, 0x100000000,
					 0x7fffffffffffffff, 0x8000000000000000, 0xffffffffffffffff};
	const uint64_t pick = next_random();
	if (pick & 1) return edges[(pick >> 8) % (sizeof edges / sizeof *edges)];
	return pick & 2 ? next_random() : next_random() % 100000;
}

static void sum_to(unsigned char *p, int at) {
	uint64_t sum = 0xcbf29ce484222325u;
	for (int i = 0; i < at; i++) sum = (sum ^ p[i]) * 0x100000001b3u;
	store(p, (size_t)at, sum, 8);
}
static void checksum(unsigned char *p) { sum_to(p, FT_HDR_CHECKSUM); }

/* Returns the size of what is left. */
static size_t damage(unsigned char *p, size_t size) {
	const uint64_t kind = next_random() % 6;
	const int times = 1 + (int)(next_random() % 8);
	switch (kind) {
	case 0: /* bits, anywhere */
		for (int i = 0; i < times; i++) p[next_random() % size] ^= (unsigned char)(1u << (next_random() & 7));
		return size;
	case 1: /* words, anywhere behind the immutable header */
		for (int i = 0; i < times * 4; i++) store(p, 512 + next_random() % ((size - 512) / 8) * 8, nasty(), 8);
		return size;
	case 2: /* the immutable header, checksum right */
	case 3:
		for (int i = 0; i < times; i++) {
			const size_t n = next_random() & 1 ? 4 : 8;
			store(p, 16 + next_random() % (FT_HDR_CHECKSUM - 24) / n * n, nasty(), n);
		}
		checksum(p);
		return size;
	case 4: /* cut short, now and then under a header that knows */
		size = next_random() % size;
		if (size >= FT_HEADER_SIZE && next_random() & 1) {
			store(p, FT_HDR_FILE_LENGTH, size, 8);
			checksum(p);
		}
		return size;
	default: /* a stretch of noise */
		for (size_t at = next_random() % size, end = at + next_random() % 5000; at < end && at < size; at++)
			p[at] = (unsigned char)next_random();
		if (next_random() & 1) checksum(p);
		return size;
	}
}

/* The same for a segment: now and then cut, its header wrong, or words anywhere. */
static size_t damage_segment(unsigned char *p, size_t size) {
	const uint64_t kind = next_random() % 4;
	if (kind == 0) return size;
	if (kind == 1) return next_random() % size;
	for (uint64_t n = next_random() % 6; n > 0; n--) {
		if (kind == 2)
			store(p, 16 + next_random() % 9 * 4, nasty(), 4);
		else
			store(p, FT_HEADER_SIZE + next_random() % ((size - FT_HEADER_SIZE) / 8) * 8, nasty(), 8);
	}
	sum_to(p, FT_DEV_CHECKSUM);
	return size;
}

static unsigned char *read_file(const char *path, size_t *size) {
	FILE *f = fopen(path, "rb");
	if (f == NULL || fseek(f, 0, SEEK_END) != 0) exit(2);
	*size = (size_t)ftell(f);
	unsigned char *whole = (unsigned char *)malloc(*size);
	rewind(f);
	if (whole == NULL || fread(whole, 1, *size, f) != *size) exit(2);
	fclose(f);
	return whole;
}

/* A damaged copy in memory of exactly the length that is left of it: the sanitizer guards its end. */
static unsigned char *damaged(const unsigned char *whole, size_t size, size_t (*harm)(unsigned char *, size_t), size_t *left) {
	unsigned char *p = (unsigned char *)malloc(size), *exact;
	memcpy(p, whole, size);
	*left = harm ? harm(p, size) : size;
	exact = (unsigned char *)malloc(*left + !*left);
	memcpy(exact, p, *left);
	free(p);
	return exact;
}

int main(int argc, char **argv) {
	if (argc != 5) return 2;
	size_t size, segment_size;
	unsigned char *whole = read_file(argv[1], &size), *segment = read_file(argv[2], &segment_size);
	state = strtoull(argv[3], NULL, 10) * 2 + 1;
	const long rounds = strtol(argv[4], NULL, 10);
	long attached = 0, segments = 0;
	for (long i = 0; i < rounds; i++) {
		size_t left, segment_left;
		unsigned char *exact = damaged(whole, size, i == 0 ? NULL : damage, &left);
		unsigned char *words = damaged(segment, segment_size, i == 0 ? NULL : damage_segment, &segment_left);
		ft_reader r;
		if (ft_attach(&r, exact, left) == FT_OK) {
			ft_device_segment s;
			attached++;
			everything(&r);
			if (ft_device_open_memory(&s, words, segment_left) == FT_OK) {
				segments++;
				all_words(&r, &s);
				ft_device_close(&s);
			}
			ft_close(&r);
		}
		free(exact);
		free(words);
	}
	printf("rounds %ld attached %ld segments %ld sum %" PRIx64 "\n", rounds, attached, segments, sink);
	free(whole);
	free(segment);
	return 0;
}
