/* SPDX-License-Identifier: Apache-2.0
 *
 * uverbs_std_device.c: the methods of the device object, as the kernel's uverbs_std_types_device.c. */
#include <errno.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>

#include "uverbs_core.h"

int uv_invoke_write(struct uv_call *call)
{
	uint64_t cmd;
	int err = uv_get_const(call, UVERBS_ATTR_WRITE_CMD, UINT32_MAX, &cmd);
	const struct uv_write_cmd *w = err ? NULL : uv_write_find(cmd);
	if (!w)
		return err ? err : EOPNOTSUPP;
	uv_fill_udata(call, &call->core, UVERBS_ATTR_CORE_IN, UVERBS_ATTR_CORE_OUT);
	if (call->core.inlen < w->req || call->core.outlen < w->resp)
		return ENOSPC;
	call->name = w->name;
	if ((err = uv_gate_unlocked(call, w->name)))
		return err;
	err = w->run(call);
	if (!err && call->core.outlen)
		err = uv_copy_to(call, UVERBS_ATTR_CORE_OUT, NULL, 0);
	return err;
}

static int get_context(struct uv_call *call)
{
	const struct uv_device_ops *ops = call->device->ops;
	uint32_t vectors = ops->num_comp_vectors;
	uint64_t support = IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS;
	int err = uv_copy_to_opt(call, UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, &vectors, sizeof(vectors));
	if (!err)
		err = uv_copy_to_opt(call, UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, &support, sizeof(support));
	if (err)
		return err;
	if (uv_lost(call->file))
		return EIO;
	if (call->file->context)
		return EINVAL;
	struct uv_ucontext *c = calloc(1, ops->size_ib_ucontext);
	if (!c)
		return ENOMEM;
	c->file = call->file;
	call->file->context = c;
	if (ops->alloc_ucontext && (err = ops->alloc_ucontext(c, call))) {
		call->file->context = NULL;
		free(c);
	}
	return err;
}

static int query_port(struct uv_call *call)
{
	struct ib_uverbs_query_port_resp_ex r = {0};
	uint64_t port;
	int err = uv_get_context(call);
	if (!err && !call->device->ops->query_port)
		err = EOPNOTSUPP;
	if (!err)
		err = uv_get_const(call, UVERBS_ATTR_QUERY_PORT_PORT_NUM, 255, &port);
	if (!err && port != 1)
		err = EINVAL;
	if (!err)
		err = call->device->ops->query_port(call->device, &r);
	if (!err && call->device->port_down)
		r.legacy_resp.state = 1, r.legacy_resp.phys_state = 3;
	return err ? err : uv_copy_to_or_zero(call, UVERBS_ATTR_QUERY_PORT_RESP, &r, sizeof(r));
}

/* The only GID of a device: the link-local address of its netdev. */
void uv_gid(const struct uv_device *device, uint8_t gid[16])
{
	const uint8_t *m = device->mac;
	const uint8_t own[16] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]};
	memcpy(gid, own, sizeof(own));
}

static struct ib_uverbs_gid_entry gid_of(const struct uv_device *d)
{
	struct ib_uverbs_gid_entry e = {.port_num = 1, .gid_type = IB_UVERBS_GID_TYPE_ROCE_V2};
	if (d->ops->driver_id == RDMA_DRIVER_EFA)
		e.gid_type = IB_UVERBS_GID_TYPE_IB;
	else
		e.netdev_ifindex = if_nametoindex(d->netdev);
	uv_gid(d, (uint8_t *)e.gid);
	return e;
}

static int query_gid_entry(struct uv_call *call)
{
	struct ib_uverbs_gid_entry e = gid_of(call->device);
	uint64_t flags, port, index;
	int err = uv_get_flags(call, UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, 0, &flags);
	if (!err)
		err = uv_get_const(call, UVERBS_ATTR_QUERY_GID_ENTRY_PORT, UINT32_MAX, &port);
	if (!err)
		err = uv_get_const(call, UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, UINT32_MAX, &index);
	if (!err)
		err = uv_get_context(call);
	if (!err && port != 1)
		err = EINVAL;
	if (!err && index)
		err = EINVAL;
	return err ? err : uv_copy_to_or_zero(call, UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, &e, sizeof(e));
}

static const struct uv_attr_spec invoke_write_attrs[] = {
	UV_ATTR_CONST_IN(UVERBS_ATTR_WRITE_CMD, UV_MANDATORY),
	UV_ATTR_IN(UVERBS_ATTR_CORE_IN, sizeof(uint32_t), UV_SIZE_ANY, UV_OPTIONAL),
	UV_ATTR_OUT(UVERBS_ATTR_CORE_OUT, 0, UV_SIZE_ANY, UV_OPTIONAL),
	UV_ATTR_UHW,
	{0}};
static const struct uv_attr_spec get_context_attrs[] = {
	UV_ATTR_TYPE_OUT(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, uint32_t, UV_OPTIONAL),
	UV_ATTR_TYPE_OUT(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, uint64_t, UV_OPTIONAL),
	UV_ATTR_UHW,
	{0}};
static const struct uv_attr_spec query_port_attrs[] = {
	UV_ATTR_CONST_IN(UVERBS_ATTR_QUERY_PORT_PORT_NUM, UV_MANDATORY),
	UV_ATTR_STRUCT_OUT(UVERBS_ATTR_QUERY_PORT_RESP, struct ib_uverbs_query_port_resp_ex, reserved, UV_MANDATORY),
	{0}};
static const struct uv_attr_spec query_gid_entry_attrs[] = {
	UV_ATTR_CONST_IN(UVERBS_ATTR_QUERY_GID_ENTRY_PORT, UV_MANDATORY),
	UV_ATTR_CONST_IN(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, UV_MANDATORY),
	UV_ATTR_FLAGS_IN(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, UV_OPTIONAL),
	UV_ATTR_STRUCT_OUT(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, struct ib_uverbs_gid_entry, netdev_ifindex, UV_MANDATORY),
	{0}};
const struct uv_method uv_device_methods[] = {
	{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, "INVOKE_WRITE", invoke_write_attrs, uv_invoke_write},
	{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT, "QUERY_PORT", query_port_attrs, query_port},
	{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT, "GET_CONTEXT", get_context_attrs, get_context},
	{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY, "QUERY_GID_ENTRY", query_gid_entry_attrs, query_gid_entry},
	{0}};
