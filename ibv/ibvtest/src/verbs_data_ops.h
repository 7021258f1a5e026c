/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_data_ops.h: nic_device.h continued: the interface to completion queues and completion
 * counters for libmlx5.so.1 and libefa.so.1 of ibvtest. */
#ifndef FLOWTALLY_IBVTEST_VERBS_DATA_OPS_H
#define FLOWTALLY_IBVTEST_VERBS_DATA_OPS_H

#include "verbs_abi.h"

/* A completion queue as it lies in memory. */
struct ibvtest_ring {
	void *buffer;
	uint32_t *doorbell;
	uint32_t entries, number;
};

struct ibvtest_data_ops {
	/* The ring of a queue. From then on its consumer index is the caller's: see
	 * mlx5dv_init_obj(3). 0 or a positive errno. */
	int (*cq_ring)(struct ibv_cq *cq, struct ibvtest_ring *ring);

	/* Does the device offer external memory for completion counters? Not with WITHOUT=efadv
	 * or comp_cntr; NULL in a library without counters. */
	int (*offers_external)(struct ibv_device *device);

	/* ibv_create_comp_cntr, with words of the caller's where they are not NULL; the call is
	 * counted as verb. NULL and errno. */
	struct ibv_comp_cntr *(*create_comp_cntr)(struct ibv_context *context, const char *verb,
						  const struct ibv_comp_cntr_init_attr *attr, uint64_t *completions,
						  uint64_t *errors);
};

#endif
