/* SPDX-License-Identifier: Apache-2.0
 *
 * rdma_wire.c: the common part of all devices that move data: the existing queue pairs and memory
 * regions. */
#include <time.h>

#include "rdma_qp.h"

/* The lists' heads are set up before main. */
static struct {
	struct rdma_link qps, mrs;
} wire = {
	.qps = {&wire.qps, &wire.qps},
	.mrs = {&wire.mrs, &wire.mrs},
};

struct rdma_link *rdma_wire_qps(void)
{
	return &wire.qps;
}

struct rdma_link *rdma_wire_mrs(void)
{
	return &wire.mrs;
}

uint64_t rdma_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
