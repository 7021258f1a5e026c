/* SPDX-License-Identifier: Apache-2.0
 *
 * uverbs_std_types_cq.c: completion queues. */
#include <errno.h>

#include "uverbs_core.h"

int uv_cq_destroy(struct uv_object *o, struct uv_call *call)
{
	struct uv_cq *cq = (struct uv_cq *)o;
	int err = o->device->ops->destroy_cq ? o->device->ops->destroy_cq(cq, call) : 0;
	if (err)
		return err;
	uv_cq_release_events(cq);
	if (cq->channel)
		cq->channel->object.uses--;
	return 0;
}

static int create(struct uv_call *call)
{
	struct uv_cq *cq = (struct uv_cq *)uv_attr_object(call, UVERBS_ATTR_CREATE_CQ_HANDLE);
	uint64_t flags;
	if (!call->device->ops->create_cq)
		return EOPNOTSUPP;
	int err = uv_copy_from(call, UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, &cq->comp_vector, sizeof(cq->comp_vector));
	if (!err)
		err = uv_copy_from(call, UVERBS_ATTR_CREATE_CQ_CQE, &cq->cqe, sizeof(cq->cqe));
	if (!err)
		err = uv_copy_from(call, UVERBS_ATTR_CREATE_CQ_USER_HANDLE, &cq->object.user_handle, sizeof(uint64_t));
	if (!err)
		err = uv_get_flags(call, UVERBS_ATTR_CREATE_CQ_FLAGS,
				   IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION | IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN, &flags);
	if (!err && !cq->cqe)
		err = EINVAL;
	if (!err && cq->comp_vector >= call->device->ops->num_comp_vectors)
		err = EINVAL;
	if (err)
		return err;
	cq->flags = flags;
	cq->channel = (struct uv_channel *)uv_attr_object(call, UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL);
	if ((err = call->device->ops->create_cq(cq, call)))
		return err;
	if (cq->channel)
		cq->channel->object.uses++;
	if ((err = uv_copy_to(call, UVERBS_ATTR_CREATE_CQ_RESP_CQE, &cq->cqe, sizeof(cq->cqe))))
		(void)uv_cq_destroy(&cq->object, NULL);
	else
		cq->object.destroy = uv_cq_destroy;
	return err;
}

static int destroy(struct uv_call *call)
{
	const struct uv_cq *cq = (struct uv_cq *)uv_attr_object(call, UVERBS_ATTR_DESTROY_CQ_HANDLE);
	struct ib_uverbs_destroy_cq_resp r = {cq->comp_events_reported, cq->async_events_reported};
	return uv_copy_to(call, UVERBS_ATTR_DESTROY_CQ_RESP, &r, sizeof(r));
}

static const struct uv_attr_spec create_attrs[] = {
	UV_ATTR_IDR(UVERBS_ATTR_CREATE_CQ_HANDLE, UVERBS_OBJECT_CQ, UV_NEW, UV_MANDATORY),
	UV_ATTR_TYPE_IN(UVERBS_ATTR_CREATE_CQ_CQE, uint32_t, UV_MANDATORY),
	UV_ATTR_TYPE_IN(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, uint64_t, UV_MANDATORY),
	UV_ATTR_FD(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, UVERBS_OBJECT_COMP_CHANNEL, UV_READ, UV_OPTIONAL),
	UV_ATTR_TYPE_IN(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, uint32_t, UV_MANDATORY),
	UV_ATTR_FLAGS_IN(UVERBS_ATTR_CREATE_CQ_FLAGS, UV_OPTIONAL),
	UV_ATTR_TYPE_OUT(UVERBS_ATTR_CREATE_CQ_RESP_CQE, uint32_t, UV_MANDATORY),
	UV_ATTR_FD(UVERBS_ATTR_CREATE_CQ_EVENT_FD, UVERBS_OBJECT_ASYNC_EVENT, UV_READ, UV_OPTIONAL),
	UV_ATTR_UHW,
	{0}};
static const struct uv_attr_spec destroy_attrs[] = {
	UV_ATTR_IDR(UVERBS_ATTR_DESTROY_CQ_HANDLE, UVERBS_OBJECT_CQ, UV_DESTROY, UV_MANDATORY),
	UV_ATTR_TYPE_OUT(UVERBS_ATTR_DESTROY_CQ_RESP, struct ib_uverbs_destroy_cq_resp, UV_MANDATORY),
	{0}};

const struct uv_method uv_cq_methods[] = {
	{UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE, "CQ_CREATE", create_attrs, create},
	{UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, "CQ_DESTROY", destroy_attrs, destroy},
	{0}};
