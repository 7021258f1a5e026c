/* SPDX-License-Identifier: Apache-2.0
 *
 * rdma_queue.c: the slots of a send or receive queue. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rdma_qp.h"

#define BLOCK 64          /* bytes of a WQE basic block */
#define MAX_BLOCKS 0x10000 /* wqe_counter has 16 bits */

static uint32_t blocks(uint32_t bytes)
{
	return bytes ? (bytes + BLOCK - 1) / BLOCK : 1;
}

int rdma_queue_make(struct rdma_queue *q, uint32_t depth, uint32_t max_sge, uint32_t max_inline, uint32_t most)
{
	uint64_t need = (uint64_t)depth * blocks(most), n = 1;
	while (n < need)
		n <<= 1;
	if (n > MAX_BLOCKS)
		return ENOMEM;
	q->depth = depth;
	q->max_sge = max_sge;
	q->max_inline = max_inline;
	q->mask = n - 1;
	/* One more of each than may be asked for, so that no size is 0. */
	q->wqe = calloc(depth + 1, sizeof(*q->wqe));
	q->sge = calloc((size_t)depth * max_sge + 1, sizeof(*q->sge));
	q->data = calloc((size_t)depth * max_inline + 1, 1);
	q->block = calloc(n, sizeof(*q->block));
	if (q->wqe && q->sge && q->data && q->block)
		return 0;
	rdma_queue_free(q);
	return ENOMEM;
}

void rdma_queue_free(struct rdma_queue *q)
{
	free(q->wqe);
	free(q->sge);
	free(q->data);
	free(q->block);
	memset(q, 0, sizeof(*q));
}

void rdma_queue_clear(struct rdma_queue *q)
{
	q->head = q->next = q->tail = 0;
	q->blocks = 0;
}

struct rdma_wqe *rdma_queue_take(struct rdma_queue *q, uint32_t bytes)
{
	if (q->head - q->tail >= q->depth)
		return NULL;
	struct rdma_wqe *w = rdma_wqe(q, q->head);
	memset(w, 0, sizeof(*w));
	w->counter = q->blocks;
	q->block[q->blocks & q->mask] = q->head;
	q->blocks += blocks(bytes);
	return w;
}
