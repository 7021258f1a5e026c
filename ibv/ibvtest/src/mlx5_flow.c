/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_flow.c: matchers and the flows in them, as libmlx5 makes them.
 */
#include <stdlib.h>

#include "mlx5.h"

enum {
	/* An element of a program that was built before rdma-core 60. */
	ACTION_BYTES_BEFORE_60 = offsetof(struct mlx5dv_flow_action_attr, obj) + sizeof(void *),

	/* The bytes from one element to the next for mlx5dv_create_flow, which is not told. 60.0, 60.1, 61.0
	 * and 62.0 step by the struct of their own header. */
#if IBVTEST_RDMA_CORE == 61
	ACTION_BYTES = sizeof(struct mlx5dv_flow_action_attr),
#else
	ACTION_BYTES = ACTION_BYTES_BEFORE_60,
#endif
};

MLX5_PUBLIC struct mlx5dv_flow_matcher *mlx5dv_create_flow_matcher(struct ibv_context *context,
								    struct mlx5dv_flow_matcher_attr *attr)
{
	struct kernel_call call = KERNEL_CALL(MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_CREATE);
	uint64_t *handle = kernel_object(&call, MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE, 0);
	struct mlx5dv_flow_matcher *m = malloc(sizeof *m);
	int err = mlx5_enter(context, "mlx5dv_create_flow_matcher");

	if (!err && (attr->comp_mask & ~(uint64_t)MLX5DV_FLOW_MATCHER_MASK_FT_TYPE || attr->type != MLX5_IB_FLOW_TYPE_NORMAL))
		err = EOPNOTSUPP;
	if (err)
		return mlx5_made(m, err);
	kernel_in(&call, MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK, attr->match_mask->match_buf, attr->match_mask->match_sz);
	kernel_in(&call, MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA, &attr->match_criteria_enable, 1);
	kernel_in(&call, MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE, &attr->priority, sizeof attr->priority)->attr_data.elem_id =
		MLX5_IB_FLOW_TYPE_NORMAL;
	if (attr->comp_mask)
		kernel_number(&call, MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE, attr->ft_type);
	if (attr->flags)
		kernel_number(&call, MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS, attr->flags);
	err = m ? mlx5_call(context, &call) : ENOMEM;
	if (!err)
		*m = (struct mlx5dv_flow_matcher){ context, *handle };
	return mlx5_made(m, err);
}

MLX5_PUBLIC int mlx5dv_destroy_flow_matcher(struct mlx5dv_flow_matcher *matcher)
{
	int err = mlx5_enter(matcher->context, "mlx5dv_destroy_flow_matcher");

	if (!err)
		err = mlx5_destroy(matcher->context, MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_DESTROY,
				   MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE, matcher->handle);
	if (!err)
		free(matcher);
	return err;
}

/* The actions of a flow so far. A flow has one destination of QP, default miss and drop. */
struct actions {
	int destination, counter, tag;
};

static int add_action(struct kernel_call *call, struct actions *has, const struct mlx5dv_flow_action_attr *a, size_t attr_len)
{
	uint32_t handle;

	switch (a->type) {
	case MLX5DV_FLOW_ACTION_DEST_IBV_QP:
	case MLX5DV_FLOW_ACTION_DEFAULT_MISS:
	case MLX5DV_FLOW_ACTION_DROP:
		if (has->destination++)
			return EOPNOTSUPP;
		if (a->type == MLX5DV_FLOW_ACTION_DEST_IBV_QP)
			kernel_object(call, MLX5_IB_ATTR_CREATE_FLOW_DEST_QP, a->qp->handle);
		else
			kernel_number(call, MLX5_IB_ATTR_CREATE_FLOW_FLAGS,
				      a->type == MLX5DV_FLOW_ACTION_DROP ? MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP
									 : MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS);
		return 0;
	case MLX5DV_FLOW_ACTION_TAG:
		kernel_in(call, MLX5_IB_ATTR_CREATE_FLOW_TAG, &a->tag_value, sizeof a->tag_value);
		return has->tag++ ? EINVAL : 0;
	case MLX5DV_FLOW_ACTION_COUNTERS_DEVX_WITH_OFFSET:
	case MLX5DV_FLOW_ACTION_COUNTERS_DEVX:
		if (has->counter++)
			return EOPNOTSUPP;
		if (a->type == MLX5DV_FLOW_ACTION_COUNTERS_DEVX_WITH_OFFSET) {
			if (attr_len <= ACTION_BYTES_BEFORE_60)
				return EOPNOTSUPP;
			kernel_in(call, MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET, &a->bulk_obj.offset,
				  sizeof a->bulk_obj.offset);
		}
		handle = a->obj->handle;
		kernel_in(call, MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX, &handle, sizeof handle);
		return 0;
	}
	return EOPNOTSUPP;
}

static struct ibv_flow *create_flow(const char *symbol, struct mlx5dv_flow_matcher *m,
				    struct mlx5dv_flow_match_parameters *value, size_t num_actions, const void *actions,
				    size_t attr_len)
{
	struct kernel_call call = KERNEL_CALL(UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_CREATE_FLOW);
	uint64_t *handle = kernel_object(&call, MLX5_IB_ATTR_CREATE_FLOW_HANDLE, 0);
	struct ibv_flow *flow;
	struct actions has = { 0 };
	int err = mlx5_enter(m->context, symbol);

	if (!err && attr_len < ACTION_BYTES_BEFORE_60)
		err = EINVAL;
	kernel_in(&call, MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE, value->match_buf, value->match_sz);
	kernel_object(&call, MLX5_IB_ATTR_CREATE_FLOW_MATCHER, m->handle);
	for (size_t i = 0; i < num_actions && !err; i++)
		err = add_action(&call, &has, (const void *)((const char *)actions + i * attr_len), attr_len);
	if (err)
		return mlx5_made(NULL, err);
	flow = provider_ops(m->context->device)->make_flow(m->context, &call);
	if (flow)
		flow->handle = *handle;
	return flow;
}

MLX5_PUBLIC struct ibv_flow *mlx5dv_create_flow(struct mlx5dv_flow_matcher *matcher, struct mlx5dv_flow_match_parameters *value,
						size_t num_actions, struct mlx5dv_flow_action_attr actions[])
{
	return create_flow("mlx5dv_create_flow", matcher, value, num_actions, actions, ACTION_BYTES);
}

#if IBVTEST_RDMA_CORE == 65
MLX5_PUBLIC struct ibv_flow *__mlx5dv_create_flow(struct mlx5dv_flow_matcher *matcher,
						  struct mlx5dv_flow_match_parameters *value, size_t num_actions,
						  struct mlx5dv_flow_action_attr actions[], size_t attr_len)
{
	return create_flow("__mlx5dv_create_flow", matcher, value, num_actions, actions, attr_len);
}
#endif
