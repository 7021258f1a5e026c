/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_flow.h: the actions of a flow by libmlx5, and the objects that they name as far as the releases agree. */
#ifndef IBVTEST_MLX5_FLOW_H
#define IBVTEST_MLX5_FLOW_H

#include "shim.h"

enum {
	MLX5DV_FLOW_ACTION_DROP = 1,
	MLX5DV_FLOW_ACTION_TAG = 4,
	MLX5DV_FLOW_ACTION_COUNTERS_DEVX = 6,
	MLX5DV_FLOW_ACTION_DEFAULT_MISS,
	MLX5DV_FLOW_ACTION_COUNTERS_DEVX_WITH_OFFSET,
};

struct mlx5dv_devx_obj {
	struct ibv_context *context;
	uint32_t handle;
};

struct mlx5dv_flow_matcher {
	struct ibv_context *context;
	uint32_t handle;
};

struct mlx5dv_flow_match_parameters {
	size_t match_sz;
	uint64_t match_buf[];
};

/* Of rdma-core 60 on. Releases before it have no offset: 16 bytes. */
struct mlx5dv_flow_action_attr {
	uint32_t type;
	union {
		uint32_t tag_value;
		struct mlx5dv_devx_obj *obj;
		struct {
			struct mlx5dv_devx_obj *obj;
			uint32_t offset;
		} bulk_obj;
	};
};
struct action_before_60 {
	uint32_t type;
	struct mlx5dv_devx_obj *obj;
};

#endif
