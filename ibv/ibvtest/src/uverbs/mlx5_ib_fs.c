/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_ib_fs.c: flows, by verbs and by a matcher, as mlx5_ib's fs.c makes them. The tables, their room and the rules with
 * one match are mlx5_core's (nic_tables.c). A flow of the types ALL_DEFAULT, MC_DEFAULT and SNIFFER has specs
 * of the driver in place of its own, and counts nothing. */
#include <errno.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>

#include "mlx5_ib_flow.h"

/* mlx5_ib_flow_matcher is a matcher, made by MLX5_IB_METHOD_FLOW_MATCHER_CREATE. */
struct mlx5_ib_flow_matcher {
	struct uv_object object; /* uses: its flows */
	uint8_t mask[4 * MLX5_IB_DW_MATCH_PARAM];
	uint8_t flow_type, criteria;
	uint16_t priority;
	uint64_t ft_type;
};
_Static_assert(sizeof(struct mlx5_ib_flow_matcher) <= UV_DRIVER_OBJECT_SIZE, "an object of the driver's own type");

/* mlx5_core: a rule that goes on to the next table needs one. */
static int add_rule(struct uv_device *device, struct nic_rule_attr *rule, struct nic_rule **made)
{
	struct nic *nic;
	int err = uv_device_nic(device, &nic);
	if (!err && (rule->flags & (NIC_DONT_TRAP | NIC_DEFAULT_MISS)) &&
	    ((rule->flags & NIC_EGRESS) || uv_without(device, "dont_trap")))
		err = EOPNOTSUPP;
	return err ? err : nic_rule_add(nic, rule, made);
}

/* The driver's part of EX_CREATE_FLOW: the description of counters, if it has one. */
static int read_ucmd(struct uv_call *call, struct mlx5_ib_flow_counters_data *data, bool *has)
{
	struct mlx5_ib_create_flow c;
	const struct uv_udata *u = &call->driver;
	int err;
	*has = false;
	if (!u->inlen)
		return 0;
	if (u->inlen < sizeof(c))
		return EOPNOTSUPP;
	if ((err = uv_udata_in_at(call, u, 0, &c, sizeof(c))))
		return err;
	if (c.ncounters_data > 1)
		return EINVAL;
	if (!uv_udata_cleared(call, u, sizeof(c) + c.ncounters_data * sizeof(*data)))
		return EOPNOTSUPP;
	*has = c.ncounters_data;
	return *has ? uv_udata_in_at(call, u, sizeof(c), data, sizeof(*data)) : 0;
}

static int check_attr(const struct uv_device *device, const struct ib_uverbs_flow_attr *attr)
{
	bool egress = attr->flags & IB_FLOW_ATTR_FLAGS_EGRESS;
	if (attr->priority > MLX5_IB_FLOW_LAST_PRIO)
		return ENOMEM;
	if (attr->flags & ~(IB_FLOW_ATTR_FLAGS_DONT_TRAP | IB_FLOW_ATTR_FLAGS_EGRESS))
		return EINVAL;
	if (egress && (attr->type == IB_FLOW_ATTR_ALL_DEFAULT || attr->type == IB_FLOW_ATTR_MC_DEFAULT))
		return EINVAL;
	return attr->type > IB_FLOW_ATTR_SNIFFER || (egress && uv_without(device, "egress")) ? EOPNOTSUPP : 0;
}

static int normal_flow(struct mlx5_ib_flow *f, const struct ib_uverbs_flow_attr *attr, const uint8_t *specs,
		       struct mlx5_flow_spec *spec, struct uv_call *call)
{
	struct mlx5_ib_flow_counters_data data;
	struct nic_rule_attr rule = {.priority = attr->priority};
	bool has;
	int err = read_ucmd(call, &data, &has);
	if (!err)
		err = mlx5_ib_parse_specs(attr, specs, spec);
	if (!err && spec->counts)
		err = mlx5_ib_flow_counters_set_data(spec->counters[0], call, has ? &data : NULL);
	if (!err)
		err = mlx5_match_mask(spec->mask, 0xff);
	if (!err)
		err = mlx5_match(spec->mask, spec->value, &rule.match);
	if (err)
		return err;
	rule.flags = (attr->flags & IB_FLOW_ATTR_FLAGS_DONT_TRAP ? NIC_DONT_TRAP : 0) |
		     (attr->flags & IB_FLOW_ATTR_FLAGS_EGRESS ? NIC_EGRESS : 0) | (spec->drop ? NIC_DROP : 0) |
		     (spec->multicast_only && !(attr->flags & IB_FLOW_ATTR_FLAGS_DONT_TRAP) ? NIC_LAST : 0);
	if (spec->counts)
		rule.counter = &((struct mlx5_ib_mcounters *)spec->counters[0])->hw;
	if (!(rule.flags & (NIC_DROP | NIC_EGRESS)))
		rule.queue = f->ibflow.qp->frames;
	return add_rule(call->device, &rule, &f->rule);
}

static void unuse_counters(struct mlx5_ib_flow *f)
{
	while (f->counts)
		mlx5_ib_counters_unuse(f->counters[--f->counts]);
}

int mlx5_ib_create_flow(struct uv_flow *flow, const struct ib_uverbs_flow_attr *attr, const uint8_t *specs, struct uv_call *call)
{
	struct mlx5_ib_flow *f = (struct mlx5_ib_flow *)flow;
	struct mlx5_flow_spec *spec;
	int err;
	if (uv_without(call->device, "flows"))
		return EOPNOTSUPP;
	if (attr->port != 1)
		return EINVAL;
	spec = calloc(1, sizeof(*spec));
	if (!spec)
		return ENOMEM;
	err = mlx5_ib_convert_specs(call->file, attr, specs, spec);
	if (!err) {
		f->counts = spec->counts;
		memcpy(f->counters, spec->counters, sizeof(f->counters));
		for (unsigned i = 0; i < f->counts; i++)
			f->counters[i]->object.uses++;
		err = check_attr(call->device, attr);
	}
	if (!err && attr->type == IB_FLOW_ATTR_NORMAL)
		err = normal_flow(f, attr, specs, spec, call);
	if (err)
		unuse_counters(f);
	free(spec);
	return err;
}

int mlx5_ib_destroy_flow(struct uv_flow *flow, struct uv_call *call)
{
	struct mlx5_ib_flow *f = (struct mlx5_ib_flow *)flow;
	(void)call;
	if (f->rule)
		nic_rule_del(flow->object.device->nic, f->rule);
	unuse_counters(f);
	if (f->matcher)
		f->matcher->uses--;
	if (f->devx)
		f->devx->uses--;
	return 0;
}

/* --- Matchers ---------------------------------------------------------------------------------------------------- */

static int create_matcher(struct uv_call *call)
{
	struct mlx5_ib_flow_matcher *m =
		(struct mlx5_ib_flow_matcher *)uv_attr_object(call, MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE);
	uint64_t flags;
	int err = uv_copy_from(call, MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK, m->mask, sizeof(m->mask));
	m->flow_type = uv_attr_get(call, MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE)->enum_id;
	if (!err && m->flow_type == MLX5_IB_FLOW_TYPE_NORMAL)
		err = uv_copy_from(call, MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE, &m->priority, sizeof(m->priority));
	if (!err)
		err = uv_copy_from(call, MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA, &m->criteria, sizeof(m->criteria));
	if (err)
		return err;
	if (uv_attr_get(call, MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE)) {
		if (uv_attr_get(call, MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS))
			return EINVAL;
		return uv_get_const(call, MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE, 6, &m->ft_type);
	}
	err = uv_get_flags(call, MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS, IB_FLOW_ATTR_FLAGS_EGRESS, &flags);
	m->ft_type = flags ? MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_TX : MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_RX;
	return err;
}

/* get_dests: flags and destinations of which a flow may have one. */
static int get_dests(struct uv_call *call, const struct mlx5_ib_flow_matcher *m, uint64_t *flags, struct uv_qp **qp)
{
	bool egress = m->ft_type == MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_TX;
	*qp = (struct uv_qp *)uv_attr_object(call, MLX5_IB_ATTR_CREATE_FLOW_DEST_QP);
	if (uv_get_flags(call, MLX5_IB_ATTR_CREATE_FLOW_FLAGS,
			 MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS | MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP, flags))
		return EINVAL;
	if (*flags == (MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS | MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP))
		return EINVAL;
	if (uv_attr_object(call, MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX)) /* no DevX object here is a destination */
		return EINVAL;
	if (!*qp)
		return 0;
	return egress || *flags || (*qp)->type != IB_UVERBS_QPT_RAW_PACKET ? EINVAL : 0;
}

static int get_counter(struct uv_call *call, struct mlx5_devx_obj **obj, uint32_t *offset)
{
	const struct uv_attr *list = uv_attr_get(call, MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX);
	const struct uv_attr *at = uv_attr_get(call, MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET);
	int err = 0;
	*obj = list ? (struct mlx5_devx_obj *)list->objects[0] : NULL;
	*offset = 0;
	if (*obj && at)
		err = at->len == sizeof(*offset)
			      ? uv_copy_from(call, MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET, offset, sizeof(*offset))
			      : EINVAL;
	if (!err && *obj && *offset && *offset >= (*obj)->counters->size)
		err = EINVAL;
	return err;
}

static int get_match(struct uv_call *call, const struct mlx5_ib_flow_matcher *m, struct nic_rule_attr *rule)
{
	uint8_t value[4 * MLX5_IB_DW_MATCH_PARAM] = {0};
	int err = uv_copy_from(call, MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE, value, sizeof(value));
	for (unsigned i = MLX5_MATCH_BYTES; i < sizeof(value); i++) /* sections that the NIC does not have */
		if (value[i] | m->mask[i])
			return EINVAL;
	if (!err)
		err = mlx5_match_mask(m->mask, m->criteria);
	if (!err)
		err = mlx5_match(m->mask, value, &rule->match);
	if (!err && (m->criteria & 1) && mlx5_match_multicast(m->mask, value))
		rule->flags |= NIC_LAST;
	return err;
}

static int check_table(const struct uv_device *device, const struct mlx5_ib_flow_matcher *m)
{
	if (m->flow_type != MLX5_IB_FLOW_TYPE_NORMAL)
		return EOPNOTSUPP;
	if (m->priority > MLX5_IB_FLOW_LAST_PRIO)
		return ENOMEM;
	if (m->ft_type == MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_TX && uv_without(device, "egress"))
		return EOPNOTSUPP;
	return m->ft_type > MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_TX ? EOPNOTSUPP : 0;
}

static int destroy_raw(struct uv_object *o, struct uv_call *call)
{
	struct uv_qp *qp = ((struct uv_flow *)o)->qp;
	if (qp)
		qp->object.uses--;
	return mlx5_ib_destroy_flow((struct uv_flow *)o, call);
}

static int create_raw_flow(struct uv_call *call)
{
	struct mlx5_ib_flow *f = (struct mlx5_ib_flow *)uv_attr_object(call, MLX5_IB_ATTR_CREATE_FLOW_HANDLE);
	struct mlx5_ib_flow_matcher *m =
		(struct mlx5_ib_flow_matcher *)uv_attr_object(call, MLX5_IB_ATTR_CREATE_FLOW_MATCHER);
	bool egress = m->ft_type == MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_TX;
	struct nic_rule_attr rule = {.priority = m->priority, .flags = egress ? NIC_EGRESS : 0};
	struct mlx5_devx_obj *obj;
	struct uv_qp *qp;
	uint64_t flags;
	uint32_t offset, tag = 0;
	if (!uv_capable(call->task, CAP_NET_RAW))
		return EPERM;
	int err = get_dests(call, m, &flags, &qp);
	if (!err)
		err = get_counter(call, &obj, &offset);
	if (!err && (err = uv_copy_from(call, MLX5_IB_ATTR_CREATE_FLOW_TAG, &tag, sizeof(tag))) == ENOENT)
		err = 0;
	if (!err && tag >> 24)
		err = EINVAL;
	if (!err)
		err = check_table(call->device, m);
	if (!err)
		err = get_match(call, m, &rule);
	if (!err && !egress && !qp && !flags) /* no destination: mlx5_core refuses the counter, firmware the rest */
		err = EINVAL;
	if (err)
		return err;
	rule.flags |= (flags & MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS ? NIC_DEFAULT_MISS : 0) |
		      (flags & MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP ? NIC_DROP : 0);
	if (obj) {
		rule.counter = &obj->counters->counter[offset];
		__atomic_store_n(&obj->counters->used, 1, __ATOMIC_RELEASE);
	}
	if (qp)
		rule.queue = qp->frames;
	if ((err = add_rule(call->device, &rule, &f->rule)))
		return err;
	f->matcher = &m->object;
	f->matcher->uses++;
	if ((f->devx = obj ? &obj->object : NULL))
		f->devx->uses++;
	if ((f->ibflow.qp = qp))
		qp->object.uses++;
	f->ibflow.object.destroy = destroy_raw;
	return 0;
}

static const struct uv_attr_spec create_matcher_attrs[] = {
	UV_ATTR_IDR(MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE, MLX5_IB_OBJECT_FLOW_MATCHER, UV_NEW, UV_MANDATORY),
	UV_ATTR_IN(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK, 1, 4 * MLX5_IB_DW_MATCH_PARAM, UV_MANDATORY),
	{.id = MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE, .type = UV_ENUM_IN, .max = MLX5_IB_FLOW_TYPE_MC_DEFAULT + 1, .mandatory = true},
	UV_ATTR_TYPE_IN(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA, uint8_t, UV_MANDATORY),
	UV_ATTR_FLAGS_IN(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS, UV_OPTIONAL),
	UV_ATTR_CONST_IN(MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE, UV_OPTIONAL),
	UV_ATTR_TYPE_IN(MLX5_IB_ATTR_FLOW_MATCHER_IB_PORT, uint32_t, UV_OPTIONAL),
	{0}};
static const struct uv_attr_spec destroy_matcher_attrs[] = {
	UV_ATTR_IDR(MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE, MLX5_IB_OBJECT_FLOW_MATCHER, UV_DESTROY, UV_MANDATORY), {0}};
static const struct uv_attr_spec create_flow_attrs[] = {
	UV_ATTR_IDR(MLX5_IB_ATTR_CREATE_FLOW_HANDLE, UVERBS_OBJECT_FLOW, UV_NEW, UV_MANDATORY),
	UV_ATTR_IN(MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE, 1, 4 * MLX5_IB_DW_MATCH_PARAM, UV_MANDATORY),
	UV_ATTR_IDR(MLX5_IB_ATTR_CREATE_FLOW_MATCHER, MLX5_IB_OBJECT_FLOW_MATCHER, UV_READ, UV_MANDATORY),
	UV_ATTR_IDR(MLX5_IB_ATTR_CREATE_FLOW_DEST_QP, UVERBS_OBJECT_QP, UV_READ, UV_OPTIONAL),
	UV_ATTR_IDR(MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX, MLX5_IB_OBJECT_DEVX_OBJ, UV_READ, UV_OPTIONAL),
	UV_ATTR_IDRS(MLX5_IB_ATTR_CREATE_FLOW_ARR_FLOW_ACTIONS, UVERBS_OBJECT_FLOW_ACTION, UV_READ, 1, 2, UV_OPTIONAL),
	UV_ATTR_TYPE_IN(MLX5_IB_ATTR_CREATE_FLOW_TAG, uint32_t, UV_OPTIONAL),
	UV_ATTR_IDRS(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX, MLX5_IB_OBJECT_DEVX_OBJ, UV_READ, 1, 1, UV_OPTIONAL),
	UV_ATTR_IN(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET, sizeof(uint32_t), UV_SIZE_ANY, UV_OPTIONAL),
	UV_ATTR_FLAGS_IN(MLX5_IB_ATTR_CREATE_FLOW_FLAGS, UV_OPTIONAL),
	{0}};
static const struct uv_attr_spec destroy_flow_attrs[] = {
	UV_ATTR_IDR(MLX5_IB_ATTR_DESTROY_FLOW_HANDLE, UVERBS_OBJECT_FLOW, UV_DESTROY, UV_MANDATORY), {0}};

const struct uv_method mlx5_ib_flow_methods[] = {
	{MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_CREATE, "FLOW_MATCHER_CREATE", create_matcher_attrs, create_matcher},
	{MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_DESTROY, "FLOW_MATCHER_DESTROY", destroy_matcher_attrs, uv_destroy_none},
	{UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_CREATE_FLOW, "CREATE_FLOW", create_flow_attrs, create_raw_flow},
	{UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_DESTROY_FLOW, "DESTROY_FLOW", destroy_flow_attrs, uv_destroy_none},
	{0}};
