/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_flow.c: matchers and the flows in them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mlx5.h"

enum {
	FLOW_ATTR_NORMAL = 0,    /* IBV_FLOW_ATTR_NORMAL */
	FLOW_FLAGS_EGRESS = 4,   /* IBV_FLOW_ATTR_FLAGS_EGRESS */
	QPT_RAW_PACKET = 8,      /* IBV_QPT_RAW_PACKET */
	LAST_PRIORITY = 15,      /* MLX5_IB_FLOW_LAST_PRIO */
	LAST_TAG = (1 << 24) - 1,

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
								    struct mlx5dv_flow_matcher_attr *attr);
MLX5_PUBLIC int mlx5dv_destroy_flow_matcher(struct mlx5dv_flow_matcher *matcher);
MLX5_PUBLIC struct ibv_flow *mlx5dv_create_flow(struct mlx5dv_flow_matcher *matcher, struct mlx5dv_flow_match_parameters *value,
						size_t num_actions, struct mlx5dv_flow_action_attr actions[]);
#if IBVTEST_RDMA_CORE == 65
MLX5_PUBLIC struct ibv_flow *__mlx5dv_create_flow(struct mlx5dv_flow_matcher *matcher,
						  struct mlx5dv_flow_match_parameters *value, size_t num_actions,
						  struct mlx5dv_flow_action_attr actions[], size_t attr_len);
#endif

/* Which table: said by flags, as egress, or by ft_type, and not by both. */
static int direction(const struct mlx5dv_flow_matcher_attr *attr, int *egress)
{
	if (attr->comp_mask & MLX5DV_FLOW_MATCHER_MASK_FT_TYPE) {
		if (attr->flags)
			return EINVAL;
		*egress = attr->ft_type == MLX5DV_FLOW_TABLE_TYPE_NIC_TX;
		return attr->ft_type > MLX5DV_FLOW_TABLE_TYPE_NIC_TX ? EOPNOTSUPP : 0;
	}
	*egress = attr->flags == FLOW_FLAGS_EGRESS;
	return attr->flags & ~FLOW_FLAGS_EGRESS ? EINVAL : 0;
}

static int fill_matcher(struct mlx5dv_flow_matcher *m, const struct mlx5dv_flow_matcher_attr *attr)
{
	const struct mlx5dv_flow_match_parameters *mask = attr->match_mask;
	int err;

	if (attr->comp_mask & ~(uint64_t)MLX5DV_FLOW_MATCHER_MASK_FT_TYPE || attr->type != FLOW_ATTR_NORMAL)
		return EOPNOTSUPP;
	err = direction(attr, &m->egress);
	if (err)
		return err;
	if (!mask || !mask->match_sz || mask->match_sz > MLX5_MATCH_BYTES)
		return EINVAL;
	memcpy(m->mask, mask->match_buf, mask->match_sz);
	m->priority = attr->priority;
	m->criteria = attr->match_criteria_enable;
	return 0;
}

struct mlx5dv_flow_matcher *mlx5dv_create_flow_matcher(struct ibv_context *context, struct mlx5dv_flow_matcher_attr *attr)
{
	struct mlx5dv_flow_matcher *m;
	int err = mlx5_enter(context, "mlx5dv_create_flow_matcher");

	if (err)
		return mlx5_no_object(err);
	m = calloc(1, sizeof *m);
	if (!m)
		return mlx5_no_object(ENOMEM);
	m->context = context;
	err = fill_matcher(m, attr);
	if (!err)
		return m;
	free(m);
	return mlx5_no_object(err);
}

int mlx5dv_destroy_flow_matcher(struct mlx5dv_flow_matcher *matcher)
{
	int err = mlx5_enter(matcher->context, "mlx5dv_destroy_flow_matcher");

	if (!err && __atomic_load_n(&matcher->flows, __ATOMIC_ACQUIRE))
		err = EBUSY;
	if (!err)
		free(matcher);
	return err;
}

/* The combined actions of a flow. */
struct actions {
	struct mlx5dv_devx_obj *counters;
	uint32_t offset;
	int qp, default_miss, drop, tag;
	uint32_t qp_type;
};

/* destination: a flow has one of QP, default miss and drop. */
static int destination(const struct actions *a)
{
	return a->qp || a->default_miss || a->drop ? EOPNOTSUPP : 0;
}

static int add_action(struct actions *a, const struct mlx5dv_flow_action_attr *attr, size_t attr_len)
{
	int err = 0;

	switch (attr->type) {
	case MLX5DV_FLOW_ACTION_DEST_IBV_QP:
		err = destination(a);
		if (err)
			return err;
		a->qp = 1;
		a->qp_type = attr->qp->qp_type; /* libmlx5 dereferences the pointer, too */
		return 0;
	case MLX5DV_FLOW_ACTION_DEFAULT_MISS:
		err = destination(a);
		a->default_miss = 1;
		return err;
	case MLX5DV_FLOW_ACTION_DROP:
		err = destination(a);
		a->drop = 1;
		return err;
	case MLX5DV_FLOW_ACTION_TAG:
		if (a->tag || attr->tag_value > LAST_TAG)
			return EINVAL;
		a->tag = 1;
		return 0;
	case MLX5DV_FLOW_ACTION_COUNTERS_DEVX_WITH_OFFSET:
		if (attr_len <= ACTION_BYTES_BEFORE_60)
			return EOPNOTSUPP;
		a->offset = attr->bulk_obj.offset;
		/* fallthrough */
	case MLX5DV_FLOW_ACTION_COUNTERS_DEVX:
		if (a->counters)
			return EOPNOTSUPP;
		a->counters = attr->obj;
		return a->counters ? 0 : EINVAL;
	}
	return EOPNOTSUPP;
}

/* The checks of mlx5_ib on the actions together. */
static int check_actions(const struct mlx5dv_flow_matcher *m, const struct actions *a)
{
	if (a->counters && a->counters->context->device != m->context->device)
		return EINVAL;
	if (a->counters && a->offset && a->offset >= a->counters->counters->size)
		return EINVAL;
	if (a->qp && (m->egress || a->qp_type != QPT_RAW_PACKET))
		return EINVAL;
	if (m->egress)
		return a->default_miss ? EOPNOTSUPP : 0;
	return a->qp || a->default_miss || a->drop ? 0 : EINVAL; /* nothing to do with the packet */
}

/* made holds the objects that a flow uses until it is destroyed. */
struct made {
	struct mlx5dv_flow_matcher *matcher;
	struct mlx5dv_devx_obj *counters;
};

static void hold(struct made *made, int n)
{
	__atomic_fetch_add(&made->matcher->flows, n, __ATOMIC_ACQ_REL);
	if (made->counters)
		__atomic_fetch_add(&made->counters->flows, n, __ATOMIC_ACQ_REL);
}

static void release(void *arg)
{
	hold(arg, -1);
	free(arg);
}

static int rule_of(const struct mlx5dv_flow_matcher *m, const struct mlx5dv_flow_match_parameters *value,
		   const struct actions *a, struct nic_rule_attr *rule)
{
	uint8_t bytes[MLX5_MATCH_BYTES] = { 0 };
	int err;

	if (!value || !value->match_sz || value->match_sz > MLX5_MATCH_BYTES)
		return EINVAL;
	memcpy(bytes, value->match_buf, value->match_sz);
	if (m->priority > LAST_PRIORITY)
		return ENOMEM;
	memset(rule, 0, sizeof *rule);
	err = mlx5_match_mask(m->mask, m->criteria); /* mlx5_ib makes a matcher of any mask, and mlx5_core refuses it here */
	if (!err)
		err = mlx5_match(m->mask, bytes, &rule->match);
	if (err)
		return err;
	rule->priority = m->priority;
	rule->flags = (m->egress ? NIC_EGRESS : 0) | (a->drop ? NIC_DROP : 0) | (a->default_miss ? NIC_DEFAULT_MISS : 0) |
		      (mlx5_match_multicast(m->mask, bytes) ? NIC_LAST : 0);
	rule->counter = a->counters ? &a->counters->counters->counter[a->offset] : NULL;
	return 0;
}

static struct ibv_flow *create(struct mlx5dv_flow_matcher *m, const struct nic_rule_attr *rule, struct mlx5dv_devx_obj *counters)
{
	const struct ibvtest_device_ops *ops = mlx5_ops(m->context->device);
	struct made *made = malloc(sizeof *made);
	struct ibv_flow *flow;
	int err;

	if (!made)
		return mlx5_no_object(ENOMEM);
	*made = (struct made){ m, counters };
	hold(made, 1);
	if (counters)
		__atomic_store_n(&counters->counters->used, 1, __ATOMIC_RELEASE);
	flow = ops->create_flow(m->context, rule, release, made);
	if (flow)
		return flow;
	err = errno;
	release(made);
	return mlx5_no_object(err);
}

static struct ibv_flow *create_flow(struct mlx5dv_flow_matcher *m, const struct mlx5dv_flow_match_parameters *value,
				    size_t num_actions, const void *actions, size_t attr_len)
{
	struct actions a = { 0 };
	struct nic_rule_attr rule;
	int err = 0;

	for (size_t i = 0; i < num_actions && !err; i++)
		err = add_action(&a, (const void *)((const char *)actions + i * attr_len), attr_len);
	if (!err)
		err = check_actions(m, &a);
	if (!err)
		err = rule_of(m, value, &a, &rule);
	return err ? mlx5_no_object(err) : create(m, &rule, a.counters);
}

struct ibv_flow *mlx5dv_create_flow(struct mlx5dv_flow_matcher *matcher, struct mlx5dv_flow_match_parameters *value,
				    size_t num_actions, struct mlx5dv_flow_action_attr actions[])
{
	int err = mlx5_enter(matcher->context, "mlx5dv_create_flow");

	return err ? mlx5_no_object(err) : create_flow(matcher, value, num_actions, actions, ACTION_BYTES);
}

#if IBVTEST_RDMA_CORE == 65
struct ibv_flow *__mlx5dv_create_flow(struct mlx5dv_flow_matcher *matcher, struct mlx5dv_flow_match_parameters *value,
				      size_t num_actions, struct mlx5dv_flow_action_attr actions[], size_t attr_len)
{
	int err = mlx5_enter(matcher->context, "__mlx5dv_create_flow");

	if (!err && attr_len < ACTION_BYTES_BEFORE_60)
		err = EINVAL;
	return err ? mlx5_no_object(err) : create_flow(matcher, value, num_actions, actions, attr_len);
}
#endif
