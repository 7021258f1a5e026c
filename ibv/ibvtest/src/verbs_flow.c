/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_flow.c: flows, with the checks of uverbs and mlx5 in their order and with their errnos.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verbs_soft.h"

#define PRIORITIES 16 /* MLX5_BY_PASS_NUM_REGULAR_PRIOS */

static void stop_flow(struct soft_object *o)
{
	struct soft_flow *f = RDMA_OUTER(o, struct soft_flow, object);
	if (f->rule)
		nic_rule_del(verbs_context_of(f->flow.context)->device->nic, f->rule);
	f->rule = NULL;
}

void verbs_release_flow(struct soft_object *o)
{
	struct soft_flow *f = RDMA_OUTER(o, struct soft_flow, object);
	stop_flow(o);
	if (f->counters)
		verbs_counters_unbind(f->counters);
	if (f->qp)
		verbs_qp_use(f->qp, -1);
	if (f->end)
		f->end(f->arg);
	free(f);
}

static int check(const struct ibv_qp *qp, const struct ibv_flow_attr *a)
{
	const char *device = qp->context->device->name;
	bool dont_trap = a->flags & IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
	bool egress = a->flags & IBV_FLOW_ATTR_FLAGS_EGRESS;
	bool leftovers = a->type == IBV_FLOW_ATTR_ALL_DEFAULT || a->type == IBV_FLOW_ATTR_MC_DEFAULT;
	if (verbs_flow_counts_twice(a)) /* libibverbs does not look at comp_mask */
		return EINVAL;
	if (!verbs_net_raw())
		return EPERM;
	if (a->flags & ~(IBV_FLOW_ATTR_FLAGS_DONT_TRAP | IBV_FLOW_ATTR_FLAGS_EGRESS) || (leftovers && a->flags))
		return EINVAL;
	if (verbs_without(device, "flows"))
		return EOPNOTSUPP;
	/* uverbs refuses port 0 since Linux 5.14; mlx5_ib alone takes it */
	if (a->port != 1 || (qp->qp_type != IBV_QPT_RAW_PACKET && qp->qp_type != IBV_QPT_UD))
		return EINVAL;
	if (a->priority >= PRIORITIES)
		return ENOMEM; /* the errno of mlx5's kernel driver */
	/* mlx5_ib takes DONT_TRAP with EGRESS, and mlx5_core has no next table on egress */
	if (a->type > IBV_FLOW_ATTR_SNIFFER || (dont_trap && egress))
		return EOPNOTSUPP;
	if ((dont_trap && verbs_without(device, "dont_trap")) || (egress && verbs_without(device, "egress")))
		return EOPNOTSUPP;
	return 0;
}

static uint32_t rule_flags(const struct ibv_flow_attr *a, const struct verbs_flow_parts *parts)
{
	uint32_t flags = parts->rule.flags;
	if (a->flags & IBV_FLOW_ATTR_FLAGS_DONT_TRAP)
		flags |= NIC_DONT_TRAP;
	if (a->flags & IBV_FLOW_ATTR_FLAGS_EGRESS)
		flags |= NIC_EGRESS;
	if (parts->dropped)
		flags |= NIC_DROP;
	return flags;
}

/* arm binds the counters and puts the rule into the NIC. Flows of the other types have
 * none: mlx5 replaces their specs by its own and drops the COUNT, though the counters
 * object is in use from then on. */
static int arm(struct soft_flow *f, const struct ibv_flow_attr *a, struct verbs_flow_parts *parts)
{
	struct soft_counters *counters = (struct soft_counters *)parts->counters;
	bool normal = a->type == IBV_FLOW_ATTR_NORMAL;
	int err = counters ? verbs_counters_bind(counters, f->flow.context, normal) : 0;
	if (err)
		return err;
	if (normal) {
		struct nic *nic = verbs_nic(f->flow.context, &err);
		parts->rule.priority = a->priority;
		parts->rule.flags = rule_flags(a, parts);
		parts->rule.counter = counters ? verbs_counters_nic(counters) : NULL;
		if (nic)
			err = nic_rule_add(nic, &parts->rule, &f->rule);
	}
	if (err && counters)
		verbs_counters_unbind(counters);
	else
		f->counters = counters;
	return err;
}

struct soft_flow *verbs_new_flow(struct ibv_context *context)
{
	struct soft_flow *f = calloc(1, sizeof(*f));
	if (f) {
		f->flow.context = context;
		f->flow.handle = verbs_handle(context);
		f->object.stop = stop_flow;
	}
	return f;
}

struct ibv_flow *verbs_create_flow(struct ibv_qp *qp, struct ibv_flow_attr *attr)
{
	struct soft_flow *f = NULL;
	struct verbs_flow_parts parts;
	memset(&parts, 0, sizeof(parts));
	int err = verbs_begin(qp->context, "ibv_create_flow");
	if (err)
		return verbs_made(NULL, err);
	err = check(qp, attr);
	if (!err)
		err = verbs_flow_parse(attr, &parts);
	if (!err && parts.tagged && (attr->type == IBV_FLOW_ATTR_ALL_DEFAULT || attr->type == IBV_FLOW_ATTR_MC_DEFAULT))
		err = EINVAL;
	if (!err && !(f = verbs_new_flow(qp->context)))
		err = ENOMEM;
	if (!err)
		err = arm(f, attr, &parts);
	if (!err) {
		f->qp = qp;
		verbs_qp_use(qp, 1);
		verbs_adopt(qp->context, &f->object, verbs_release_flow);
	} else {
		free(f);
	}
	verbs_leave(qp->context);
	return verbs_made(f, err);
}

int verbs_destroy_flow(struct ibv_flow *flow)
{
	return verbs_destroy(flow->context, "ibv_destroy_flow", &((struct soft_flow *)flow)->object);
}
