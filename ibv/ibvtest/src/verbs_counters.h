/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_counters.h: a counters object, for the flows that name it. */
#ifndef FLOWTALLY_IBVTEST_VERBS_COUNTERS_H
#define FLOWTALLY_IBVTEST_VERBS_COUNTERS_H

#include "uverbs/mlx5_abi_flow.h"
#include "verbs_soft.h"

struct soft_counters {
	struct ibv_counters counters;
	uint32_t handle;
	struct mlx5_ib_flow_counters_desc *points;
	uint32_t n;
	unsigned flows; /* that name it */
};

void verbs_counters_lock(void);
void verbs_counters_unlock(void);

#endif
