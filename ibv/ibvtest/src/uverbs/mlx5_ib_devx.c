/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_ib_devx.c: DevX, the interface for firmware commands, as mlx5_ib's devx.c: general commands, objects, and queries
 * of objects, of which the results of the asynchronous ones are messages on a descriptor. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mlx5_ib_flow.h"

enum {
	HEADER = 16, /* bytes of general_obj_in_cmd_hdr, and of its output */
	MAX_ASYNC_BYTES_IN_USE = 1 << 20,
};

int mlx5_ib_has_devx(const struct uv_call *call)
{
	const struct mlx5_ib_ucontext *c = to_mucontext(call->file);
	if (!c || !(c->flags & MLX5_IB_ALLOC_UCTX_DEVX))
		return EINVAL;
	return uv_lost(call->file) ? EIO : 0;
}

static int copy_counters(void *device, struct nic_counter *from, struct nic_counter *to, unsigned n, int clear)
{
	struct nic *nic;
	int err = uv_device_nic(device, &nic);
	return err ? err : nic_counters_copy(nic, from, to, n, clear);
}

/* A command's input and output, in one piece of memory. */
struct command {
	uint8_t *in, *out;
	size_t inlen, outlen;
	uint16_t opcode;
};

static int get_command(struct uv_call *call, uint16_t in, size_t outlen, struct command *c)
{
	int err = mlx5_ib_has_devx(call);
	if (err)
		return err;
	c->inlen = uv_attr_get(call, in)->len;
	c->outlen = outlen;
	c->in = calloc(1, c->inlen + c->outlen + HEADER);
	if (!c->in)
		return ENOMEM;
	c->out = c->in + c->inlen;
	err = uv_copy_from(call, in, c->in, c->inlen);
	c->opcode = mlx5_get(c->in, 0, 16);
	if (err)
		free(c->in);
	return err;
}

/* The caller gets the output of a command that firmware refused, too. */
static int put_command(struct uv_call *call, uint16_t out, struct command *c, int err)
{
	int late = err && err != EREMOTEIO ? 0 : uv_copy_to(call, out, c->out, c->outlen);
	free(c->in);
	return late ? late : err;
}

static int other(struct uv_call *call)
{
	struct command c;
	int err = get_command(call, MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, uv_attr_get(call, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT)->len, &c);
	if (err)
		return err;
	err = c.opcode == MLX5_CMD_QUERY_HCA_CAP ? uv_gate(call->device, "QUERY_HCA_CAP") : EINVAL;
	if (!err)
		err = mlx5_query_hca_cap(c.in, c.inlen, c.out, c.outlen);
	return put_command(call, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, &c, err);
}

static int destroy_obj(struct uv_object *o, struct uv_call *call)
{
	struct mlx5_devx_obj *obj = (struct mlx5_devx_obj *)o;
	(void)call;
	free(obj->counters);
	return obj->queue ? mlx5_ib_devx_queues.destroy(obj) : 0;
}

static int create_obj(struct uv_call *call)
{
	struct mlx5_devx_obj *obj = (struct mlx5_devx_obj *)uv_attr_object(call, MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE);
	uint16_t out = MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT;
	struct command c;
	int err = get_command(call, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, uv_attr_get(call, out)->len, &c);
	if (err)
		return err;
	if (c.opcode == MLX5_CMD_ALLOC_FLOW_COUNTER) {
		err = uv_gate(call->device, "ALLOC_FLOW_COUNTER");
		if (!err)
			err = mlx5_alloc_flow_counter(c.in, c.inlen, c.out, c.outlen, &obj->counters);
	} else {
		bool served = &mlx5_ib_devx_queues && mlx5_ib_devx_queues.creates(c.opcode);
		err = served ? mlx5_ib_devx_queues.create(call, obj, c.in, c.inlen, c.out, c.outlen) : EINVAL;
	}
	err = put_command(call, out, &c, err);
	if (err)
		(void)destroy_obj(&obj->object, NULL);
	else
		obj->object.destroy = destroy_obj;
	return err;
}

/* devx_is_valid_obj_id: the command must be about the object. */
static int check_query(const struct mlx5_devx_obj *obj, const struct command *c)
{
	if (!obj->counters || c->opcode != MLX5_CMD_QUERY_FLOW_COUNTER || c->inlen < 32)
		return EINVAL;
	uint32_t id = mlx5_get(c->in, 0xe0, 32);
	return id < obj->counters->id || id >= obj->counters->id + obj->counters->n ? EINVAL : 0;
}

static int query(struct uv_call *call, struct mlx5_devx_obj *obj, struct command *c)
{
	int err = uv_gate(call->device, "QUERY_FLOW_COUNTER");
	return err ? err : mlx5_query_flow_counter(obj->counters, c->in, c->inlen, c->out, c->outlen, copy_counters, call->device);
}

static int query_obj(struct uv_call *call)
{
	struct mlx5_devx_obj *obj = (struct mlx5_devx_obj *)uv_attr_object(call, MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE);
	uint16_t out = MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT;
	struct command c;
	int err = get_command(call, MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, uv_attr_get(call, out)->len, &c);
	if (err)
		return err;
	err = obj->queue ? mlx5_ib_devx_queues.query(obj, c.in, c.inlen, c.out, c.outlen) : check_query(obj, &c);
	if (!err && !obj->queue)
		err = query(call, obj, &c);
	return put_command(call, out, &c, err);
}

static int alloc_async_fd(struct uv_call *call)
{
	return mlx5_ib_has_devx(call);
}

static int send_result(struct uv_channel *to, uint64_t wr_id, const struct command *c)
{
	struct iovec parts[] = {{&wr_id, sizeof(wr_id)}, {c->out, c->outlen}};
	struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
	return sendmsg(to->write_fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? EAGAIN : 0;
}

/* unread is the number of bytes in the caller's descriptor, by a descriptor that ends here: one that stays would hide that
 * the caller closed its own. */
static int unread(const struct uv_call *call, uint16_t id, int *n)
{
	int process = syscall(SYS_pidfd_open, call->task->pid, 0), err = 0;
	int fd = process < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, process, (int)uv_attr_get(call, id)->data, 0);
	if (fd < 0 || ioctl(fd, SIOCINQ, n))
		err = errno;
	if (fd >= 0)
		syscall(SYS_close, fd);
	if (process >= 0)
		syscall(SYS_close, process);
	return err;
}

/* The command ends before the call returns: a caller cannot tell. If the output has no status, the result has the
 * status of a command that did not reach firmware. */
static int query_async(struct uv_call *call)
{
	struct mlx5_devx_obj *obj = (struct mlx5_devx_obj *)uv_attr_object(call, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE);
	struct uv_channel *to = (struct uv_channel *)uv_attr_object(call, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD);
	uint64_t outlen, wr_id;
	struct command c;
	int waiting = 0;
	int err = uv_get_const(call, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN, UINT16_MAX, &outlen);
	if (!err)
		err = uv_copy_from(call, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID, &wr_id, sizeof(wr_id));
	if (!err)
		err = get_command(call, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN, outlen, &c);
	if (err)
		return err;
	err = check_query(obj, &c);
	if (!err)
		err = unread(call, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD, &waiting);
	if (!err && waiting + outlen > MAX_ASYNC_BYTES_IN_USE)
		err = EAGAIN;
	if (!err) {
		if (query(call, obj, &c) && !c.out[0])
			mlx5_answer(c.out, c.outlen, MLX5_STATUS_INT_ERR, 0);
		err = send_result(to, wr_id, &c);
	}
	free(c.in);
	return err;
}

static const struct uv_attr_spec other_attrs[] = {
	UV_ATTR_IN(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, HEADER, UV_SIZE_ANY, UV_MANDATORY),
	UV_ATTR_OUT(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, HEADER, UV_SIZE_ANY, UV_MANDATORY),
	{0}};
static const struct uv_attr_spec create_attrs[] = {
	UV_ATTR_IDR(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, MLX5_IB_OBJECT_DEVX_OBJ, UV_NEW, UV_MANDATORY),
	UV_ATTR_IN(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, HEADER, UV_SIZE_ANY, UV_MANDATORY),
	UV_ATTR_OUT(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, HEADER, UV_SIZE_ANY, UV_MANDATORY),
	{0}};
static const struct uv_attr_spec destroy_attrs[] = {
	UV_ATTR_IDR(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, MLX5_IB_OBJECT_DEVX_OBJ, UV_DESTROY, UV_MANDATORY), {0}};
static const struct uv_attr_spec query_attrs[] = {
	UV_ATTR_IDR(MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE, MLX5_IB_OBJECT_DEVX_OBJ, UV_READ, UV_MANDATORY),
	UV_ATTR_IN(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, HEADER, UV_SIZE_ANY, UV_MANDATORY),
	UV_ATTR_OUT(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, HEADER, UV_SIZE_ANY, UV_MANDATORY),
	{0}};
static const struct uv_attr_spec query_async_attrs[] = {
	UV_ATTR_IDR(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE, MLX5_IB_OBJECT_DEVX_OBJ, UV_READ, UV_MANDATORY),
	UV_ATTR_IN(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN, HEADER, UV_SIZE_ANY, UV_MANDATORY),
	UV_ATTR_FD(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD, MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, UV_READ, UV_MANDATORY),
	UV_ATTR_TYPE_IN(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID, uint64_t, UV_MANDATORY),
	UV_ATTR_CONST_IN(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN, UV_MANDATORY),
	{0}};
static const struct uv_attr_spec async_fd_attrs[] = {
	UV_ATTR_FD(MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE, MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, UV_NEW, UV_MANDATORY), {0}};

const struct uv_method mlx5_ib_devx_methods[] = {
	{MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER, "DEVX_OTHER", other_attrs, other},
	{MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE, "DEVX_OBJ_CREATE", create_attrs, create_obj},
	{MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY, "DEVX_OBJ_DESTROY", destroy_attrs, uv_destroy_none},
	{MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY, "DEVX_OBJ_QUERY", query_attrs, query_obj},
	{MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY, "DEVX_OBJ_ASYNC_QUERY", query_async_attrs, query_async},
	{MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC, "DEVX_ASYNC_CMD_FD_ALLOC", async_fd_attrs,
	 alloc_async_fd},
	{0}};
