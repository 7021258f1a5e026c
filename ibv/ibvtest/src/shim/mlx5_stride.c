/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_stride.c: mlx5dv_create_flow as in rdma-core 60.0, 60.1, 61.0 and 62.0, which no suite packages. It reads the
 * actions 24 bytes apart, and the release has no __mlx5dv_create_flow to tell it so. */
#include "mlx5_flow.h"

enum { ACTIONS = 8 };

SHIM_PUBLIC struct ibv_flow *mlx5dv_create_flow(struct mlx5dv_flow_matcher *matcher, struct mlx5dv_flow_match_parameters *value,
						size_t n, void *actions);

/* The real one reads them 16 bytes apart. */
struct ibv_flow *mlx5dv_create_flow(struct mlx5dv_flow_matcher *matcher, struct mlx5dv_flow_match_parameters *value, size_t n,
				    void *actions)
{
	const struct mlx5dv_flow_action_attr *given = actions;
	struct action_before_60 list[ACTIONS];
	if (n > ACTIONS)
		return shim_fail(EINVAL);
	for (size_t i = 0; i < n; i++)
		list[i] = (struct action_before_60){.type = given[i].type, .obj = given[i].obj};
	return SHIM_REAL("libmlx5.so.1", mlx5dv_create_flow)(matcher, value, n, list);
}
