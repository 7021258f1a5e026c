/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally_words.h: feeding a counter of a mirror: reserved words, for a program with queue
 * pairs of its own.
 *
 *     ft_words w;
 *     int err = ft_words_take(&w, "/run/flowtally/default.mirror", "app", 0, NULL);
 *     if (!err) ft_words_add(&w, 1, 0);
 *     ft_words_close(&w);
 *
 * flowtally_ring.h counts the completion queue of an mlx5 device.
 *
 * Promises (docs/embedding.md)
 *
 *   - The words are the value of the counter, and nothing else that a reader reads. They
 *     begin at 0, and the total of the counter goes on over changes of programs.
 *   - The length of their file is sealed: no access to them faults.
 *   - ft_words_add makes no system call, and waits for no process.
 *
 * The words are the external memory of a completion counter too, where the device has such:
 * words[0] counts completions, and words[1] errors. No other function may write them then.
 * Destroy the device's objects before ft_words_close.
 *
 * Threads: ft_words_add may be called by any. After fork(2) the child has the words too, until
 * either process calls ft_words_close, which gives them back at once, or both have ended. Linux
 * only; elsewhere ft_words_take returns FT_ERR_NO_WORDS.
 */
#ifndef FLOWTALLY_WORDS_H
#define FLOWTALLY_WORDS_H

#include "flowtally_order.h"
#include "flowtally_socket.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Words that this process has. words and handle are for programs; the rest is private. */
typedef struct ft_words {
	uint64_t *words;     /* completions and errors; NULL: none */
	uint32_t index;      /* of the handle of the counter */
	uint32_t generation;
	int64_t wait;        /* after FT_ERR_IN_USE: ns until the words can be taken; 0: not known */
	int s;               /* the connection by which this process has the words */
	uint64_t limit;      /* largest value of a word */
} ft_words;

/* Takes the words that are reserved under a name in the mirror at path, until ft_words_close
 * or the end of the process. limit is the largest value of a word, after which a device goes
 * on at 0 (max_value of struct ibv_comp_cntr_caps), for words that a device writes; 0: 2^64 - 1.
 *
 * FT_ERR_NO_WORDS: the instance has no reserved words. FT_ERR_NO_COUNTER: none of that name.
 * FT_ERR_IN_USE: another program has them, or they cool down after its end. FT_ERR_PERMISSION:
 * the caller may not connect. FT_ERR_OWNER: the other end belongs to a user who is not trusted.
 * FT_ERR_REPLY: the other end is not flowtally, is of another version, or hangs. */
FT_API int ft_words_take(ft_words *w, const char *path, const char *name, uint64_t limit, const ft_options *options);
/* Gives the words back: their counts stay in the total, and another program can take them at
 * once. w has no words then. */
FT_API void ft_words_close(ft_words *w);
/* 1 while the instance shows the words in its mirror, 0 after its end. Makes a system call. */
FT_API int ft_words_served(const ft_words *w);
/* Counts completions and errors in the words, for a program that counts by itself. Words with a
 * limit go on at 0 past it: count less than half of it between two poll cycles then. */
FT_API void ft_words_add(ft_words *w, uint64_t completions, uint64_t errors);

/* ---- layout: docs/mirror-format.md, section 12 ---------------------------- */

enum {
	FT_WDM_VERSION = 8,
	FT_WDM_BYTE_ORDER = 12,
	FT_WDM_KIND = 16,
	FT_WDM_LIMIT = 32,
	FT_WDM_INDEX = 40,
	FT_WDM_GENERATED = 44,
	FT_WDM_NAME = 64,

	FT_WDM_TAKE = 1,
	FT_WDM_RETURN = 3,
	FT_WDM_SIZE = 128,
	FT_WORDS_FILE_SIZE = 4096
};

#ifndef FLOWTALLY_SHARED
#ifdef __linux__
static inline void ft_words_message(unsigned char *m, uint32_t kind) {
	const uint32_t version = 1, order = 0x01020304;
	memset(m, 0, FT_WDM_SIZE);
	memcpy(m, "FLOWWORD", 8);
	memcpy(m + FT_WDM_VERSION, &version, sizeof version);
	memcpy(m + FT_WDM_BYTE_ORDER, &order, sizeof order);
	memcpy(m + FT_WDM_KIND, &kind, sizeof kind);
}

static inline int ft_words_send(int s, const unsigned char *m) {
	const int64_t began = ft_now();
	ssize_t n;
	do n = send(s, m, FT_WDM_SIZE, MSG_NOSIGNAL);
	while (n < 0 && ft_socket_again(began));
	return n == FT_WDM_SIZE ? FT_OK : FT_ERR_REPLY; /* the instance has closed the connection */
}

/* The result of a reply, whose errno is 0 where a descriptor came with it. */
static inline int ft_words_reply(const unsigned char *m, int fd) {
	uint32_t version, order, number;
	memcpy(&version, m + FT_WDM_VERSION, sizeof version);
	memcpy(&order, m + FT_WDM_BYTE_ORDER, sizeof order);
	memcpy(&number, m + FT_WDM_KIND, sizeof number);
	if (memcmp(m, "FLOWWORD", 8) != 0 || order != 0x01020304 || version != 1) return FT_ERR_REPLY;
	if ((number == 0) != (fd >= 0)) return FT_ERR_REPLY;
	switch (number) {
	case 0: return FT_OK;
	case ENOENT: return FT_ERR_NO_COUNTER;
	case EBUSY:
	case EAGAIN: return FT_ERR_IN_USE;
	case EINVAL: return FT_ERR_ARGUMENT;
	default: errno = (int)number; return FT_ERR_SYSTEM;
	}
}

/* The seals of a file as Linux numbers them: the C library declares its names for them under _GNU_SOURCE alone. */
enum { FT_GET_SEALS = 1034, FT_SEAL_SHRINK = 0x2, FT_SEAL_GROW = 0x4 };

/* Maps a words file. Its seals say that its length never changes. */
static inline int ft_words_map(ft_words *w, int fd) {
	struct stat st;
	const int fixed = FT_SEAL_SHRINK | FT_SEAL_GROW, seals = fcntl(fd, FT_GET_SEALS);
	if (seals < 0 || (seals & fixed) != fixed) return FT_ERR_REPLY;
	if (fstat(fd, &st) != 0) return FT_ERR_SYSTEM;
	if (st.st_size != FT_WORDS_FILE_SIZE) return FT_ERR_REPLY;
	void *at = mmap(NULL, FT_WORDS_FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED) return FT_ERR_SYSTEM;
	w->words = (uint64_t *)at;
	return FT_OK;
}

static inline void ft_words_return(int s) {
	unsigned char m[FT_WDM_SIZE];
	const int was = errno;
	const int64_t began = ft_now();
	ft_words_message(m, FT_WDM_RETURN);
	/* The instance closes the connection when it has read the last values. */
	if (ft_words_send(s, m) == FT_OK)
		while (recv(s, m, 1, 0) < 0 && ft_socket_again(began)) {
		}
	errno = was;
}

static inline int ft_words_ask(ft_words *w, const char *name, uint64_t limit) {
	unsigned char m[FT_WDM_SIZE];
	uint64_t wait;
	int fd = -1;
	ft_words_message(m, FT_WDM_TAKE);
	memcpy(m + FT_WDM_LIMIT, &limit, sizeof limit);
	memcpy(m + FT_WDM_NAME, name, strlen(name));
	int err = ft_words_send(w->s, m);
	if (!err) err = ft_socket_receive(w->s, m, sizeof m, &fd, FT_ERR_REPLY);
	if (err == FT_ERR_CORRUPT) err = FT_ERR_REPLY;
	if (!err) err = ft_words_reply(m, fd);
	if (err == FT_ERR_IN_USE) {
		memcpy(&wait, m + FT_WDM_LIMIT, sizeof wait);
		w->wait = (int64_t)wait;
	}
	if (!err) err = ft_words_map(w, fd);
	ft_close_file(fd); /* the mapping stays */
	if (err) {
		ft_words_return(w->s); /* the instance may have given them */
		return err;
	}
	memcpy(&w->index, m + FT_WDM_INDEX, sizeof w->index);
	memcpy(&w->generation, m + FT_WDM_GENERATED, sizeof w->generation);
	return FT_OK;
}

static inline int ft_words_connect(ft_words *w, const char *path, const char *name, uint64_t limit, const ft_options *options) {
	int err = ft_socket_connect(path, ".words", options, FT_ERR_NO_WORDS, &w->s);
	if (!err) err = ft_words_ask(w, name, w->limit = limit ? limit : UINT64_MAX);
	if (err) {
		ft_close_file(w->s);
		w->s = -1;
	}
	return err;
}

static inline int ft_words_connected(int s) {
	char one;
	return recv(s, &one, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && (errno == EAGAIN || errno == EINTR);
}
#else
static inline int ft_words_connect(ft_words *w, const char *path, const char *name, uint64_t limit, const ft_options *options) {
	(void)w, (void)path, (void)name, (void)limit, (void)options;
	return FT_ERR_NO_WORDS;
}
static inline void ft_words_return(int s) { (void)s; }
static inline int ft_words_connected(int s) { return (void)s, 0; }
#endif

FT_API int ft_words_take(ft_words *w, const char *path, const char *name, uint64_t limit, const ft_options *options) {
	memset(w, 0, sizeof *w);
	w->s = -1;
	if (name[0] == 0 || strlen(name) >= FT_WDM_SIZE - FT_WDM_NAME) return FT_ERR_ARGUMENT;
	return ft_words_connect(w, path, name, limit, options);
}

FT_API void ft_words_close(ft_words *w) {
	if (w->words == NULL) return;
	ft_words_return(w->s);
	ft_close_file(w->s);
	(void)munmap(w->words, FT_WORDS_FILE_SIZE);
	memset(w, 0, sizeof *w);
	w->s = -1;
}

FT_API int ft_words_served(const ft_words *w) { return w->words != NULL && ft_words_connected(w->s); }

/* Adds to a word, modulo limit + 1. */
static inline void ft_word_add(uint64_t *word, uint64_t n, uint64_t limit) {
	uint64_t was = __atomic_load_n(word, __ATOMIC_RELAXED), now;
	if (limit != UINT64_MAX) n %= limit + 1;
	do now = was + n - (n > limit - was ? limit + 1 : 0);
	while (!__atomic_compare_exchange_n(word, &was, now, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

FT_API void ft_words_add(ft_words *w, uint64_t completions, uint64_t errors) {
	if (completions) ft_word_add(&w->words[0], completions, w->limit);
	if (errors) ft_word_add(&w->words[1], errors, w->limit);
}

#endif /* FLOWTALLY_SHARED */

#ifdef __cplusplus
}
#endif

#endif /* FLOWTALLY_WORDS_H */
