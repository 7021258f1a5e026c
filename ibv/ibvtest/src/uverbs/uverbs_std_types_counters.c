/* SPDX-License-Identifier: Apache-2.0
 *
 * uverbs_std_types_counters.c: counters objects, and completion counters. */
#include <errno.h>
#include <stdlib.h>

#include "uverbs_core.h"

static int destroy_counters(struct uv_object *o, struct uv_call *call)
{
	const struct uv_device_ops *ops = o->device->ops;
	return ops->destroy_counters ? ops->destroy_counters((struct uv_counters *)o, call) : 0;
}

static int create(struct uv_call *call)
{
	struct uv_counters *c = (struct uv_counters *)uv_attr_object(call, UVERBS_ATTR_CREATE_COUNTERS_HANDLE);
	int err = call->device->ops->create_counters ? call->device->ops->create_counters(c, call) : EOPNOTSUPP;
	if (!err)
		c->object.destroy = destroy_counters;
	return err;
}

static int read_counters(struct uv_call *call)
{
	struct uv_counters *c = (struct uv_counters *)uv_attr_object(call, UVERBS_ATTR_READ_COUNTERS_HANDLE);
	uint64_t flags;
	if (!call->device->ops->read_counters)
		return EOPNOTSUPP;
	if (!c->object.uses) /* no flow counts into it */
		return EINVAL;
	int err = uv_get_flags(call, UVERBS_ATTR_READ_COUNTERS_FLAGS, IB_UVERBS_READ_COUNTERS_PREFER_CACHED, &flags);
	if (err)
		return err;
	unsigned n = uv_attr_get(call, UVERBS_ATTR_READ_COUNTERS_BUFF)->len / sizeof(uint64_t);
	uint64_t *values = calloc(n + 1, sizeof(*values));
	if (!values)
		return ENOMEM;
	err = call->device->ops->read_counters(c, values, n, flags);
	if (!err && uv_mutant("wrong_stride"))
		for (unsigned i = n; i-- > 0;)
			values[i] = i % 2 ? UINT64_MAX : values[i / 2];
	if (!err)
		err = uv_copy_to(call, UVERBS_ATTR_READ_COUNTERS_BUFF, values, n * sizeof(*values));
	free(values);
	return err;
}

static int caps(struct uv_call *call)
{
	uint32_t n = 0, ops = 0;
	uint64_t max = 0;
	int err = uv_get_context(call);
	if (!err)
		err = call->device->ops->query_comp_cntr_caps
			      ? call->device->ops->query_comp_cntr_caps(call->device, &n, &max, &ops)
			      : EOPNOTSUPP;
	if (!err)
		err = uv_copy_to(call, UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_MAX_COUNTERS, &n, sizeof(n));
	if (!err)
		err = uv_copy_to(call, UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_MAX_VALUE, &max, sizeof(max));
	return err ? err : uv_copy_to(call, UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_SUPPORTED_QP_ATTACH_OPS, &ops, sizeof(ops));
}

static int destroy_comp_cntr(struct uv_object *o, struct uv_call *call)
{
	const struct uv_device_ops *ops = o->device->ops;
	return ops->destroy_comp_cntr ? ops->destroy_comp_cntr((struct uv_comp_cntr *)o, call) : 0;
}

static int create_comp_cntr(struct uv_call *call)
{
	struct uv_comp_cntr *c = (struct uv_comp_cntr *)uv_attr_object(call, UVERBS_ATTR_CREATE_COMP_CNTR_HANDLE);
	int err = call->device->ops->create_comp_cntr ? call->device->ops->create_comp_cntr(c, call) : EOPNOTSUPP;
	if (!err)
		c->object.destroy = destroy_comp_cntr;
	return err;
}

static int modify_comp_cntr(struct uv_call *call)
{
	const struct uv_device_ops *ops = call->device->ops;
	struct uv_comp_cntr *c = (struct uv_comp_cntr *)uv_attr_object(call, UVERBS_ATTR_MODIFY_COMP_CNTR_HANDLE);
	uint64_t entry, op, value;
	int err = uv_get_const(call, UVERBS_ATTR_MODIFY_COMP_CNTR_ENTRY, IB_UVERBS_COMP_CNTR_ENTRY_ERR, &entry);
	if (!err)
		err = uv_get_const(call, UVERBS_ATTR_MODIFY_COMP_CNTR_OP, IB_UVERBS_COMP_CNTR_MODIFY_OP_INC, &op);
	if (!err)
		err = uv_copy_from(call, UVERBS_ATTR_MODIFY_COMP_CNTR_VALUE, &value, sizeof(value));
	if (err)
		return err;
	if (op == IB_UVERBS_COMP_CNTR_MODIFY_OP_SET)
		return ops->set_comp_cntr ? ops->set_comp_cntr(c, entry, value) : EOPNOTSUPP;
	return ops->inc_comp_cntr ? ops->inc_comp_cntr(c, entry, value) : EOPNOTSUPP;
}

/* The order of the checks: the operations, an overlap, then the driver. */
static int attach_comp_cntr(struct uv_call *call)
{
	struct uv_qp *qp = (struct uv_qp *)uv_attr_object(call, UVERBS_ATTR_QP_ATTACH_COMP_CNTR_HANDLE);
	struct uv_comp_cntr *c = (struct uv_comp_cntr *)uv_attr_object(call, UVERBS_ATTR_QP_ATTACH_COMP_CNTR_CNTR_HANDLE);
	uint32_t ops = 0, have = 0;
	if (!call->device->ops->qp_attach_comp_cntr)
		return EOPNOTSUPP;
	int err = uv_copy_from(call, UVERBS_ATTR_QP_ATTACH_COMP_CNTR_OP_MASK, &ops, sizeof(ops));
	if (err)
		return err;
	if (!ops)
		return EINVAL;
	for (unsigned i = 0; i < qp->comp_cntrs; i++)
		have |= qp->comp_cntr[i].ops;
	if (ops & have)
		return EBUSY;
	if (qp->comp_cntrs == sizeof(qp->comp_cntr) / sizeof(qp->comp_cntr[0]))
		return ENOMEM;
	if ((err = call->device->ops->qp_attach_comp_cntr(qp, c, ops)))
		return err;
	qp->comp_cntr[qp->comp_cntrs].ops = ops;
	qp->comp_cntr[qp->comp_cntrs++].cntr = c;
	c->object.uses++;
	return 0;
}

static const struct uv_attr_spec create_attrs[] = {
	UV_ATTR_IDR(UVERBS_ATTR_CREATE_COUNTERS_HANDLE, UVERBS_OBJECT_COUNTERS, UV_NEW, UV_MANDATORY), {0}};
static const struct uv_attr_spec destroy_attrs[] = {
	UV_ATTR_IDR(UVERBS_ATTR_DESTROY_COUNTERS_HANDLE, UVERBS_OBJECT_COUNTERS, UV_DESTROY, UV_MANDATORY), {0}};
static const struct uv_attr_spec read_attrs[] = {
	UV_ATTR_IDR(UVERBS_ATTR_READ_COUNTERS_HANDLE, UVERBS_OBJECT_COUNTERS, UV_READ, UV_MANDATORY),
	UV_ATTR_OUT(UVERBS_ATTR_READ_COUNTERS_BUFF, 0, UV_SIZE_ANY, UV_MANDATORY),
	UV_ATTR_FLAGS_IN(UVERBS_ATTR_READ_COUNTERS_FLAGS, UV_OPTIONAL),
	{0}};
static const struct uv_attr_spec caps_attrs[] = {
	UV_ATTR_TYPE_OUT(UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_MAX_COUNTERS, uint32_t, UV_MANDATORY),
	UV_ATTR_TYPE_OUT(UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_MAX_VALUE, uint64_t, UV_MANDATORY),
	UV_ATTR_TYPE_OUT(UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_SUPPORTED_QP_ATTACH_OPS, uint32_t, UV_MANDATORY),
	{0}};
static const struct uv_attr_spec comp_create_attrs[] = {
	UV_ATTR_IDR(UVERBS_ATTR_CREATE_COMP_CNTR_HANDLE, UVERBS_OBJECT_COMP_CNTR, UV_NEW, UV_MANDATORY), UV_ATTR_UHW, {0}};
static const struct uv_attr_spec comp_destroy_attrs[] = {
	UV_ATTR_IDR(UVERBS_ATTR_DESTROY_COMP_CNTR_HANDLE, UVERBS_OBJECT_COMP_CNTR, UV_DESTROY, UV_MANDATORY), {0}};
static const struct uv_attr_spec comp_modify_attrs[] = {
	UV_ATTR_IDR(UVERBS_ATTR_MODIFY_COMP_CNTR_HANDLE, UVERBS_OBJECT_COMP_CNTR, UV_WRITE, UV_MANDATORY),
	UV_ATTR_CONST_IN(UVERBS_ATTR_MODIFY_COMP_CNTR_ENTRY, UV_MANDATORY),
	UV_ATTR_CONST_IN(UVERBS_ATTR_MODIFY_COMP_CNTR_OP, UV_MANDATORY),
	UV_ATTR_TYPE_IN(UVERBS_ATTR_MODIFY_COMP_CNTR_VALUE, uint64_t, UV_MANDATORY),
	{0}};
static const struct uv_attr_spec attach_attrs[] = {
	UV_ATTR_IDR(UVERBS_ATTR_QP_ATTACH_COMP_CNTR_HANDLE, UVERBS_OBJECT_QP, UV_WRITE, UV_MANDATORY),
	UV_ATTR_IDR(UVERBS_ATTR_QP_ATTACH_COMP_CNTR_CNTR_HANDLE, UVERBS_OBJECT_COMP_CNTR, UV_READ, UV_MANDATORY),
	UV_ATTR_TYPE_IN(UVERBS_ATTR_QP_ATTACH_COMP_CNTR_OP_MASK, uint32_t, UV_MANDATORY),
	{0}};

const struct uv_method uv_counter_methods[] = {
	{UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_CREATE, "COUNTERS_CREATE", create_attrs, create},
	{UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_DESTROY, "COUNTERS_DESTROY", destroy_attrs, uv_destroy_none},
	{UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_READ, "COUNTERS_READ", read_attrs, read_counters},
	{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_COMP_CNTR_CAPS, "QUERY_COMP_CNTR_CAPS", caps_attrs, caps},
	{UVERBS_OBJECT_COMP_CNTR, UVERBS_METHOD_COMP_CNTR_CREATE, "COMP_CNTR_CREATE", comp_create_attrs, create_comp_cntr},
	{UVERBS_OBJECT_COMP_CNTR, UVERBS_METHOD_COMP_CNTR_DESTROY, "COMP_CNTR_DESTROY", comp_destroy_attrs, uv_destroy_none},
	{UVERBS_OBJECT_COMP_CNTR, UVERBS_METHOD_COMP_CNTR_MODIFY, "COMP_CNTR_MODIFY", comp_modify_attrs, modify_comp_cntr},
	{UVERBS_OBJECT_QP, UVERBS_METHOD_QP_ATTACH_COMP_CNTR, "QP_ATTACH_COMP_CNTR", attach_attrs, attach_comp_cntr},
	{0}};
