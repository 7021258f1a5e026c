/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_offset.c: __mlx5dv_create_flow (MLX5_1.25.1), by which a flow counts in any counter of a bulk. It has the actions
 * that flowtally uses, and tags. */
#include "../uverbs/mlx5_abi_flow.h"
#include "mlx5_flow.h"

SHIM_PUBLIC struct ibv_flow *__mlx5dv_create_flow(struct mlx5dv_flow_matcher *matcher,
						  struct mlx5dv_flow_match_parameters *value, size_t n, void *actions,
						  size_t size);

/* The flow as libmlx5 keeps it, which frees it in ibv_destroy_flow. */
struct mlx5_flow {
	struct ibv_flow flow;
	void *counters; /* of ibv_create_flow alone */
};

/* A flow has one destination of default miss and drop, and one counter. */
static int add(struct kernel_call *call, const struct mlx5dv_flow_action_attr *a, unsigned *destinations, unsigned *counters)
{
	uint32_t flags = MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS;
	switch (a->type) {
	case MLX5DV_FLOW_ACTION_DROP:
		flags = MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP;
		/* fall through */
	case MLX5DV_FLOW_ACTION_DEFAULT_MISS:
		kernel_number(call, MLX5_IB_ATTR_CREATE_FLOW_FLAGS, flags);
		return (*destinations)++ ? EOPNOTSUPP : 0;
	case MLX5DV_FLOW_ACTION_TAG:
		kernel_in(call, MLX5_IB_ATTR_CREATE_FLOW_TAG, &a->tag_value, sizeof(a->tag_value));
		return 0;
	case MLX5DV_FLOW_ACTION_COUNTERS_DEVX_WITH_OFFSET:
		kernel_in(call, MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET, &a->bulk_obj.offset, sizeof(a->bulk_obj.offset));
		/* fall through */
	case MLX5DV_FLOW_ACTION_COUNTERS_DEVX:
		kernel_in(call, MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX, &a->obj->handle, sizeof(a->obj->handle));
		return (*counters)++ ? EOPNOTSUPP : 0;
	}
	return EOPNOTSUPP;
}

struct ibv_flow *__mlx5dv_create_flow(struct mlx5dv_flow_matcher *matcher, struct mlx5dv_flow_match_parameters *value, size_t n,
				      void *actions, size_t size)
{
	struct kernel_call call = KERNEL_CALL(RDMA_DRIVER_MLX5, UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_CREATE_FLOW);
	uint64_t *handle = kernel_object(&call, MLX5_IB_ATTR_CREATE_FLOW_HANDLE, 0);
	const struct mlx5dv_flow_action_attr *list = actions;
	unsigned destinations = 0, counters = 0;
	int err = shim_verb(matcher->context, "__mlx5dv_create_flow");
	kernel_in(&call, MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE, value->match_buf, value->match_sz);
	kernel_object(&call, MLX5_IB_ATTR_CREATE_FLOW_MATCHER, matcher->handle);
	if (!err && size != sizeof(*list))
		err = EINVAL;
	for (size_t i = 0; i < n && !err; i++)
		err = add(&call, &list[i], &destinations, &counters);
	struct mlx5_flow *f = err ? NULL : calloc(1, sizeof(*f));
	if (!err)
		err = f ? shim_ioctl(matcher->context, &call) : ENOMEM;
	if (err) {
		free(f);
		return shim_fail(err);
	}
	f->flow.context = matcher->context;
	f->flow.handle = *handle;
	return &f->flow;
}
