/* SPDX-License-Identifier: Apache-2.0
 *
 * uverbs_flow.c: the commands EX_CREATE_FLOW and EX_DESTROY_FLOW, as the kernel's uverbs_cmd.c. The driver reads the
 * specs. */
#include <errno.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>

#include "uverbs_core.h"

enum { FLOW_ALL_DEFAULT = 1, FLOW_MC_DEFAULT = 2, FLOW_DONT_TRAP = 1 << 1, FLOW_FLAGS = 7, FLOW_SPECS = 10, FLOW_SPEC_SIZE = 88 };

static int destroy_flow(struct uv_object *o, struct uv_call *call)
{
	struct uv_flow *flow = (struct uv_flow *)o;
	int err = o->device->ops->destroy_flow ? o->device->ops->destroy_flow(flow, call) : 0;
	if (!err && flow->qp)
		flow->qp->object.uses--;
	return err;
}

/* Each spec has a header and lies inside. */
static int check_specs(const uint8_t *specs, const struct ib_uverbs_flow_attr *attr)
{
	size_t left = attr->size;
	for (int i = 0; i < attr->num_of_specs; i++) {
		struct ib_uverbs_flow_spec_hdr h;
		if (left < sizeof(h))
			return EINVAL;
		memcpy(&h, specs + attr->size - left, sizeof(h));
		if (h.reserved || h.size < sizeof(h) || h.size > left)
			return EINVAL;
		left -= h.size;
	}
	return left ? EINVAL : 0;
}

static int create_flow(struct uv_call *call)
{
	struct ib_uverbs_create_flow c;
	struct ib_uverbs_create_flow_resp r = {0};
	struct uv_object *o, *qp;
	int err = uv_udata_in(call, &call->core, &c, sizeof(c));
	if (err)
		return err;
	if (c.comp_mask)
		return EINVAL;
	if (!uv_capable(call->task, CAP_NET_RAW))
		return EPERM;
	if (c.flow_attr.flags & ~FLOW_FLAGS)
		return EINVAL;
	if ((c.flow_attr.flags & FLOW_DONT_TRAP) &&
	    (c.flow_attr.type == FLOW_ALL_DEFAULT || c.flow_attr.type == FLOW_MC_DEFAULT))
		return EINVAL;
	if (c.flow_attr.num_of_specs > FLOW_SPECS || c.flow_attr.size > call->core.inlen - sizeof(c) ||
	    c.flow_attr.size > c.flow_attr.num_of_specs * FLOW_SPEC_SIZE)
		return EINVAL;
	if (c.flow_attr.reserved[0] || c.flow_attr.reserved[1])
		return EINVAL;
	uint8_t specs[FLOW_SPECS * FLOW_SPEC_SIZE];
	err = uv_udata_in_at(call, &call->core, sizeof(c), specs, c.flow_attr.size);
	if (!err)
		err = uv_object_new(call, UVERBS_OBJECT_FLOW, call->device->ops->size_ib_flow, &o);
	if (!err)
		err = uv_object_get(call->file, UVERBS_OBJECT_QP, c.qp_handle, &qp);
	if (err)
		return err;
	struct uv_flow *flow = (struct uv_flow *)o;
	flow->qp = (struct uv_qp *)qp;
	if (flow->qp->type != IB_UVERBS_QPT_UD && flow->qp->type != IB_UVERBS_QPT_RAW_PACKET)
		return EINVAL;
	if ((err = check_specs(specs, &c.flow_attr)))
		return err;
	if (!call->device->ops->create_flow)
		return EOPNOTSUPP;
	if ((err = call->device->ops->create_flow(flow, &c.flow_attr, specs, call)))
		return err;
	qp->uses++;
	r.flow_handle = uv_mutant("wrong_handle") ? o->handle ^ 0x40 : o->handle;
	if ((err = uv_udata_out(call, &call->core, &r, sizeof(r))))
		(void)destroy_flow(o, NULL);
	else
		o->destroy = destroy_flow;
	return err;
}

static int ex_destroy_flow(struct uv_call *call)
{
	struct ib_uverbs_destroy_flow c;
	struct uv_object *o;
	int err = uv_udata_in(call, &call->core, &c, sizeof(c));
	if (!err && c.comp_mask)
		err = EINVAL;
	if (!err)
		err = uv_object_get(call->file, UVERBS_OBJECT_FLOW, c.flow_handle, &o);
	return err ? err : uv_object_destroy(o, call);
}

const struct uv_write_cmd uv_flow_cmds[] = {
	{IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_CREATE_FLOW, "EX_CREATE_FLOW",
	 sizeof(struct ib_uverbs_create_flow), sizeof(struct ib_uverbs_create_flow_resp), create_flow},
	{IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_DESTROY_FLOW, "EX_DESTROY_FLOW",
	 sizeof(struct ib_uverbs_destroy_flow), 0, ex_destroy_flow},
	{0}};
