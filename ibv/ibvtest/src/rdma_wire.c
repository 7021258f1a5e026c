/* SPDX-License-Identifier: Apache-2.0
 *
 * rdma_wire.c: the common part of all devices that move data: the existing queue pairs and memory
 * regions, and their numbers. */
#include <time.h>

#include "rdma_qp.h"

/* The lists' heads are set up before main. */
static struct {
	struct rdma_link qps, mrs;
	uint32_t numbers, keys;
} wire = {
	.qps = {&wire.qps, &wire.qps},
	.mrs = {&wire.mrs, &wire.mrs},
	.numbers = 0x100, /* 0 and 1 are the management queue pairs */
	.keys = 1,
};

struct rdma_link *rdma_wire_qps(void)
{
	return &wire.qps;
}

struct rdma_link *rdma_wire_mrs(void)
{
	return &wire.mrs;
}

uint32_t rdma_wire_number(void)
{
	return wire.numbers++ & 0xffffff;
}

/* As firmware: an index and 8 bits of the consumer's, which are 0. */
uint32_t rdma_wire_key(void)
{
	return wire.keys++ << 8;
}

uint64_t rdma_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

struct rdma_qp *rdma_qp_by_number(uint32_t number)
{
	for (struct rdma_link *l = wire.qps.next; l != &wire.qps; l = l->next) {
		struct rdma_qp *q = RDMA_OUTER(l, struct rdma_qp, wire);
		if (q->number == number)
			return q;
	}
	return NULL;
}
