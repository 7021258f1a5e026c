/* SPDX-License-Identifier: Apache-2.0
 *
 * Two queue pairs of a device, which write to each other. own-queue-pair.c has the part that is
 * the same for all devices; mlx5.c or efa.c has the rest: how the queue pairs are made, and
 * how their completions come into the reserved words. */
#ifndef PAIRS_H
#define PAIRS_H

#include "flowtally_words.h"

#include <stdio.h>

#include <infiniband/verbs.h>

enum { PORT = 1, DEPTH = 64, ENTRIES = 4 * DEPTH, SIZE = 4096, LENGTH = 64, TO = 1024, ROUTE = 0 /* row of the GID table */ };

struct pairs {
	struct ibv_context *device;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qps[2];
	struct ibv_ah_attr self; /* the way to this device */
	void *memory;
	ft_words words;
};

/* Prints an error of errno, and returns -1. */
static inline int failed(const char *doing) {
	fprintf(stderr, "%s: %s\n", doing, strerror(errno));
	return -1;
}

/* The greatest value that the device writes into a word, or 0 where the program counts. Returns -1 if it cannot be known. */
int most_of_a_word(struct pairs *p, uint64_t *most);
/* Makes the completion queue and the queue pairs, in RTS, and their counter. The device may
 * compress the entries of the completion queue if compressed is not 0. */
int make_queues(struct pairs *p, int compressed);
/* Posts n writes of queue pair i to the other one. */
int post_writes(struct pairs *p, int i, int n);
/* Counts into the words. polled is the number of completions that ibv_poll_cq has returned
 * since the last call. Returns the number that it may return, or -1. */
int count_completions(struct pairs *p, int polled);
/* Destroys the counter, after the queue pairs. */
void destroy_counter(struct pairs *p);

#endif
