/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_devx.c: the verbs of DevX, the interface for firmware commands, as calls of the kernel. */
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mlx5.h"

/* completions is the struct behind the public struct, which is its first member. */
struct completions {
	struct mlx5dv_devx_cmd_comp public;
	struct ibv_context *context;
};

int mlx5_enter(struct ibv_context *context, const char *symbol)
{
	const struct ibvtest_device_ops *ops = provider_ops(context->device);

	return ops ? ops->gate(context, symbol) : EOPNOTSUPP;
}

int mlx5_call(struct ibv_context *context, struct kernel_call *call)
{
	return provider_ops(context->device)->call(context, call);
}

int mlx5_destroy(struct ibv_context *context, uint16_t object, uint16_t method, uint16_t id, uint64_t handle)
{
	struct kernel_call call = KERNEL_CALL(object, method);

	kernel_object(&call, id, handle);
	return mlx5_call(context, &call);
}

void *mlx5_made(void *object, int err)
{
	if (!err)
		return object;
	free(object);
	errno = err;
	return NULL;
}

/* These verbs return the errno and set errno, as execute_ioctl does. */
static int said(int err)
{
	if (err)
		errno = err;
	return err;
}

MLX5_PUBLIC int mlx5dv_is_supported(struct ibv_device *device)
{
	const struct ibvtest_device_ops *ops = provider_ops(device);

	return ops && ops->offers_devx(device);
}

MLX5_PUBLIC struct ibv_context *mlx5dv_open_device(struct ibv_device *device, struct mlx5dv_context_attr *attr)
{
	if (!mlx5dv_is_supported(device) || attr->comp_mask || attr->flags & ~MLX5DV_CONTEXT_FLAGS_DEVX)
		return mlx5_made(NULL, EOPNOTSUPP);
	return provider_ops(device)->open(device);
}

MLX5_PUBLIC struct mlx5dv_devx_obj *mlx5dv_devx_obj_create(struct ibv_context *context, const void *in, size_t inlen,
							    void *out, size_t outlen)
{
	struct kernel_call call = KERNEL_CALL(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE);
	uint64_t *handle = kernel_object(&call, MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, 0);
	struct mlx5dv_devx_obj *obj = malloc(sizeof *obj);
	int err = mlx5_enter(context, "mlx5dv_devx_obj_create");

	kernel_in(&call, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, in, inlen);
	kernel_out(&call, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, out, outlen);
	if (!err)
		err = obj ? mlx5_call(context, &call) : ENOMEM;
	if (!err)
		*obj = (struct mlx5dv_devx_obj){ context, *handle };
	return mlx5_made(obj, err);
}

MLX5_PUBLIC int mlx5dv_devx_obj_query(struct mlx5dv_devx_obj *obj, const void *in, size_t inlen, void *out, size_t outlen)
{
	struct kernel_call call = KERNEL_CALL(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY);
	int err = mlx5_enter(obj->context, "mlx5dv_devx_obj_query");

	kernel_object(&call, MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE, obj->handle);
	kernel_in(&call, MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, in, inlen);
	kernel_out(&call, MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, out, outlen);
	return said(err ? err : mlx5_call(obj->context, &call));
}

MLX5_PUBLIC int mlx5dv_devx_obj_destroy(struct mlx5dv_devx_obj *obj)
{
	int err = mlx5_enter(obj->context, "mlx5dv_devx_obj_destroy");

	if (!err)
		err = mlx5_destroy(obj->context, MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY,
				   MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, obj->handle);
	if (!err)
		free(obj);
	return said(err);
}

MLX5_PUBLIC int mlx5dv_devx_general_cmd(struct ibv_context *context, const void *in, size_t inlen, void *out, size_t outlen)
{
	struct kernel_call call = KERNEL_CALL(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER);
	int err = mlx5_enter(context, "mlx5dv_devx_general_cmd");

	kernel_in(&call, MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, in, inlen);
	kernel_out(&call, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, out, outlen);
	return said(err ? err : mlx5_call(context, &call));
}

MLX5_PUBLIC struct mlx5dv_devx_cmd_comp *mlx5dv_devx_create_cmd_comp(struct ibv_context *context)
{
	struct kernel_call call = KERNEL_CALL(MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC);
	uint64_t *fd = kernel_object(&call, MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE, 0);
	struct completions *c = malloc(sizeof *c);
	int err = mlx5_enter(context, "mlx5dv_devx_create_cmd_comp");

	if (!err)
		err = c ? mlx5_call(context, &call) : ENOMEM;
	if (!err)
		*c = (struct completions){ { *fd }, context };
	return mlx5_made(c, err);
}

/* Results that were not read are dropped. */
MLX5_PUBLIC void mlx5dv_devx_destroy_cmd_comp(struct mlx5dv_devx_cmd_comp *comp)
{
	close(comp->fd);
	free(comp);
}

MLX5_PUBLIC int mlx5dv_devx_obj_query_async(struct mlx5dv_devx_obj *obj, const void *in, size_t inlen, size_t outlen,
					    uint64_t wr_id, struct mlx5dv_devx_cmd_comp *comp)
{
	struct kernel_call call = KERNEL_CALL(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY);
	int err = mlx5_enter(obj->context, "mlx5dv_devx_obj_query_async");

	kernel_object(&call, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE, obj->handle);
	kernel_in(&call, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN, in, inlen);
	kernel_number(&call, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN, outlen);
	kernel_number(&call, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID, wr_id);
	kernel_object(&call, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD, comp->fd);
	return said(err ? err : mlx5_call(obj->context, &call));
}

/* One read: a result that does not fit stays (ENOSPC), as in the kernel. */
MLX5_PUBLIC int mlx5dv_devx_get_async_cmd_comp(struct mlx5dv_devx_cmd_comp *comp, struct mlx5dv_devx_async_cmd_hdr *resp,
					       size_t len)
{
	int err = mlx5_enter(((struct completions *)comp)->context, "mlx5dv_devx_get_async_cmd_comp");
	ssize_t n;

	if (err)
		return err;
	n = recv(comp->fd, resp, len, MSG_PEEK | MSG_TRUNC);
	if (n > (ssize_t)len)
		return ENOSPC;
	if (n > 0)
		n = recv(comp->fd, resp, len, 0);
	if (n < 0)
		return errno;
	return n < (ssize_t)sizeof *resp ? EINVAL : 0;
}
