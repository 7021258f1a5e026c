/* SPDX-License-Identifier: Apache-2.0
 *
 * uverbs_std_types_qp.c: queue pairs, and the commands of INVOKE_WRITE for queue pairs and completion queues. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "uverbs_core.h"

int uv_qp_destroy(struct uv_object *o, struct uv_call *call)
{
	struct uv_qp *qp = (struct uv_qp *)o;
	int err = o->device->ops->destroy_qp ? o->device->ops->destroy_qp(qp, call) : 0;
	if (err)
		return err;
	uv_qp_release_events(qp);
	if (qp->pd)
		qp->pd->object.uses--;
	if (qp->send_cq)
		qp->send_cq->object.uses--;
	if (qp->recv_cq)
		qp->recv_cq->object.uses--;
	for (unsigned i = 0; i < qp->comp_cntrs; i++)
		qp->comp_cntr[i].cntr->object.uses--;
	return 0;
}

static int check(struct uv_call *call, struct uv_qp *qp)
{
	uint64_t type, flags;
	int err = uv_get_const(call, UVERBS_ATTR_CREATE_QP_TYPE, 0xff, &type);
	if (err)
		return err;
	qp->type = type;
	switch (type) {
	case IB_UVERBS_QPT_RAW_PACKET:
		if (!uv_capable(call->task, CAP_NET_RAW))
			return EPERM;
		/* fall through */
	case IB_UVERBS_QPT_RC:
	case IB_UVERBS_QPT_UC:
	case IB_UVERBS_QPT_UD:
	case IB_UVERBS_QPT_DRIVER:
		qp->pd = (struct uv_pd *)uv_attr_object(call, UVERBS_ATTR_CREATE_QP_PD_HANDLE);
		qp->send_cq = (struct uv_cq *)uv_attr_object(call, UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE);
		qp->recv_cq = (struct uv_cq *)uv_attr_object(call, UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE);
		if (!qp->pd || !qp->send_cq || !qp->recv_cq)
			return EINVAL;
		break;
	default:
		return EINVAL; /* XRC is not served */
	}
	err = uv_get_flags(call, UVERBS_ATTR_CREATE_QP_FLAGS,
			   IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK | IB_UVERBS_QP_CREATE_SCATTER_FCS |
				   IB_UVERBS_QP_CREATE_CVLAN_STRIPPING | IB_UVERBS_QP_CREATE_PCI_WRITE_END_PADDING |
				   IB_UVERBS_QP_CREATE_SQ_SIG_ALL,
			   &flags);
	if (!err && uv_attr_get(call, UVERBS_ATTR_CREATE_QP_SOURCE_QPN)) {
		err = uv_copy_from(call, UVERBS_ATTR_CREATE_QP_SOURCE_QPN, &qp->source_qpn, sizeof(qp->source_qpn));
		if (!err && !uv_capable(call->task, CAP_NET_RAW))
			err = EPERM;
	}
	if (!err)
		err = uv_copy_from(call, UVERBS_ATTR_CREATE_QP_USER_HANDLE, &qp->object.user_handle, sizeof(uint64_t));
	if (!err)
		err = uv_copy_from_or_zero(call, UVERBS_ATTR_CREATE_QP_CAP, &qp->cap, sizeof(qp->cap));
	qp->flags = flags;
	return err;
}

static int create(struct uv_call *call)
{
	struct uv_qp *qp = (struct uv_qp *)uv_attr_object(call, UVERBS_ATTR_CREATE_QP_HANDLE);
	int err = call->device->ops->create_qp ? check(call, qp) : EOPNOTSUPP;
	if (!err)
		err = call->device->ops->create_qp(qp, call);
	if (err)
		return err;
	qp->pd->object.uses++;
	qp->send_cq->object.uses++;
	qp->recv_cq->object.uses++;
	uint32_t number = uv_mutant("wrong_qp_number") ? qp->qp_num ^ 1 : qp->qp_num;
	err = uv_copy_to_or_zero(call, UVERBS_ATTR_CREATE_QP_RESP_CAP, &qp->cap, sizeof(qp->cap));
	if (!err)
		err = uv_copy_to(call, UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &number, sizeof(number));
	if (err)
		(void)uv_qp_destroy(&qp->object, NULL);
	else
		qp->object.destroy = uv_qp_destroy;
	return err;
}

static int destroy(struct uv_call *call)
{
	const struct uv_qp *qp = (struct uv_qp *)uv_attr_object(call, UVERBS_ATTR_DESTROY_QP_HANDLE);
	struct ib_uverbs_destroy_qp_resp r = {qp->async_events_reported};
	return uv_copy_to(call, UVERBS_ATTR_DESTROY_QP_RESP, &r, sizeof(r));
}

enum { IB_QP_STATE = 1 << 0, IB_QP_CUR_STATE = 1 << 1, IB_QP_PORT = 1 << 5, IB_QP_AV = 1 << 7, IB_QP_ATTR_STANDARD_BITS = (1 << 21) - 1, IB_QP_RATE_LIMIT = 1 << 25 };

static int modify(struct uv_call *call, struct ib_uverbs_modify_qp *c, uint32_t allowed)
{
	struct uv_object *o;
	int err = uv_get_context(call);
	if (!err)
		err = uv_object_get(call->file, UVERBS_OBJECT_QP, c->qp_handle, &o);
	if (err)
		return err;
	struct uv_qp *qp = (struct uv_qp *)o;
	if (c->attr_mask & ~allowed)
		return EOPNOTSUPP;
	if ((c->attr_mask & IB_QP_PORT) && c->port_num != 1)
		return EINVAL;
	if ((c->attr_mask & IB_QP_AV) && c->dest.port_num != 1)
		return EINVAL;
	if ((c->attr_mask & IB_QP_AV) && c->dest.is_global && c->dest.sgid_index)
		return EINVAL;
	if ((c->attr_mask & IB_QP_CUR_STATE && c->cur_qp_state > 6) || (c->attr_mask & IB_QP_STATE && c->qp_state > 6))
		return EINVAL;
	if (!(c->attr_mask & IB_QP_STATE))
		c->qp_state = 0;
	if (!call->device->ops->modify_qp)
		return EOPNOTSUPP;
	err = call->device->ops->modify_qp(qp, c, c->attr_mask, call);
	if (!err && (c->attr_mask & IB_QP_STATE))
		qp->state = c->qp_state;
	return err;
}

static int modify_qp(struct uv_call *call)
{
	struct ib_uverbs_modify_qp c;
	int err = uv_udata_in(call, &call->core, &c, sizeof(c));
	return err ? err : modify(call, &c, IB_QP_ATTR_STANDARD_BITS);
}

/* Reads a command and finds the object whose handle it has at an offset. */
static int object_of(struct uv_call *call, void *command, size_t size, size_t at, uint16_t type, struct uv_object **o)
{
	uint32_t handle;
	int err = uv_udata_in(call, &call->core, command, size);
	if (!err)
		err = uv_get_context(call);
	memcpy(&handle, (char *)command + at, sizeof(handle));
	return err ? err : uv_object_get(call->file, type, handle, o);
}
#define OBJECT_OF(call, c, member, type, o) object_of(call, &(c), sizeof(c), offsetof(__typeof__(c), member), type, o)

static int query_qp(struct uv_call *call)
{
	struct ib_uverbs_query_qp c;
	struct ib_uverbs_query_qp_resp r = {0};
	struct uv_object *o;
	int err = OBJECT_OF(call, c, qp_handle, UVERBS_OBJECT_QP, &o);
	if (err)
		return err;
	const struct uv_qp *qp = (struct uv_qp *)o;
	r.qp_state = r.cur_qp_state = qp->state;
	memcpy(&r.max_send_wr, &qp->cap, sizeof(qp->cap));
	r.sq_sig_all = !!(qp->flags & IB_UVERBS_QP_CREATE_SQ_SIG_ALL);
	err = call->device->ops->query_qp ? call->device->ops->query_qp((struct uv_qp *)o, &r, c.attr_mask) : EOPNOTSUPP;
	return err ? err : uv_udata_out(call, &call->core, &r, sizeof(r));
}

static const struct uv_attr_spec create_attrs[] = {
	UV_ATTR_IDR(UVERBS_ATTR_CREATE_QP_HANDLE, UVERBS_OBJECT_QP, UV_NEW, UV_MANDATORY),
	UV_ATTR_IDR(UVERBS_ATTR_CREATE_QP_PD_HANDLE, UVERBS_OBJECT_PD, UV_READ, UV_OPTIONAL),
	UV_ATTR_IDR(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, UVERBS_OBJECT_CQ, UV_READ, UV_OPTIONAL),
	UV_ATTR_IDR(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, UVERBS_OBJECT_CQ, UV_READ, UV_OPTIONAL),
	UV_ATTR_TYPE_IN(UVERBS_ATTR_CREATE_QP_USER_HANDLE, uint64_t, UV_MANDATORY),
	UV_ATTR_STRUCT_IN(UVERBS_ATTR_CREATE_QP_CAP, struct ib_uverbs_qp_cap, max_inline_data, UV_MANDATORY),
	UV_ATTR_CONST_IN(UVERBS_ATTR_CREATE_QP_TYPE, UV_MANDATORY),
	UV_ATTR_FLAGS_IN(UVERBS_ATTR_CREATE_QP_FLAGS, UV_OPTIONAL),
	UV_ATTR_TYPE_IN(UVERBS_ATTR_CREATE_QP_SOURCE_QPN, uint32_t, UV_OPTIONAL),
	UV_ATTR_FD(UVERBS_ATTR_CREATE_QP_EVENT_FD, UVERBS_OBJECT_ASYNC_EVENT, UV_READ, UV_OPTIONAL),
	UV_ATTR_STRUCT_OUT(UVERBS_ATTR_CREATE_QP_RESP_CAP, struct ib_uverbs_qp_cap, max_inline_data, UV_MANDATORY),
	UV_ATTR_TYPE_OUT(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, uint32_t, UV_MANDATORY),
	UV_ATTR_UHW,
	{0}};
static const struct uv_attr_spec destroy_attrs[] = {
	UV_ATTR_IDR(UVERBS_ATTR_DESTROY_QP_HANDLE, UVERBS_OBJECT_QP, UV_DESTROY, UV_MANDATORY),
	UV_ATTR_TYPE_OUT(UVERBS_ATTR_DESTROY_QP_RESP, struct ib_uverbs_destroy_qp_resp, UV_MANDATORY),
	{0}};

const struct uv_method uv_qp_methods[] = {
	{UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE, "QP_CREATE", create_attrs, create},
	{UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, "QP_DESTROY", destroy_attrs, destroy},
	{0}};

const struct uv_write_cmd uv_qp_cmds[] = {
	{IB_USER_VERBS_CMD_MODIFY_QP, "MODIFY_QP", sizeof(struct ib_uverbs_modify_qp), 0, modify_qp},
	{IB_USER_VERBS_CMD_QUERY_QP, "QUERY_QP", sizeof(struct ib_uverbs_query_qp), sizeof(struct ib_uverbs_query_qp_resp),
	 query_qp},
	{0}};
