/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_devx.c: the verbs of DevX, the interface for firmware commands (mlx5_command.c). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mlx5.h"

/* The public verbs: they return the errno and set errno, as execute_ioctl does. */

static int said(int err)
{
	if (err)
		errno = err;
	return err;
}

MLX5_PUBLIC int mlx5dv_is_supported(struct ibv_device *device);
MLX5_PUBLIC struct ibv_context *mlx5dv_open_device(struct ibv_device *device, struct mlx5dv_context_attr *attr);
MLX5_PUBLIC struct mlx5dv_devx_obj *mlx5dv_devx_obj_create(struct ibv_context *context, const void *in, size_t inlen, void *out,
							    size_t outlen);
MLX5_PUBLIC int mlx5dv_devx_obj_query(struct mlx5dv_devx_obj *obj, const void *in, size_t inlen, void *out, size_t outlen);
MLX5_PUBLIC int mlx5dv_devx_obj_destroy(struct mlx5dv_devx_obj *obj);
MLX5_PUBLIC int mlx5dv_devx_general_cmd(struct ibv_context *context, const void *in, size_t inlen, void *out, size_t outlen);

int mlx5dv_is_supported(struct ibv_device *device)
{
	const struct ibvtest_device_ops *ops = mlx5_ops(device);

	mlx5_called("mlx5dv_is_supported");
	return ops && ops->offers_devx(device);
}

struct ibv_context *mlx5dv_open_device(struct ibv_device *device, struct mlx5dv_context_attr *attr)
{
	const struct ibvtest_device_ops *ops = mlx5_ops(device);

	mlx5_called("mlx5dv_open_device");
	if (!ops || !ops->offers_devx(device) || attr->comp_mask || attr->flags & ~MLX5DV_CONTEXT_FLAGS_DEVX)
		return mlx5_no_object(EOPNOTSUPP);
	return ops->open(device);
}

struct mlx5dv_devx_obj *mlx5dv_devx_obj_create(struct ibv_context *context, const void *in, size_t inlen, void *out,
						size_t outlen)
{
	struct mlx5dv_devx_obj *obj = NULL;
	int err = mlx5_enter(context, "mlx5dv_devx_obj_create");

	if (!err)
		err = mlx5_uverbs(context, inlen, outlen);
	if (!err && mlx5_get(in, 0, 16) != MLX5_CMD_ALLOC_FLOW_COUNTER)
		err = EINVAL;
	if (!err)
		err = mlx5_new_counters(context, in, inlen, out, outlen, &obj);
	return err ? mlx5_no_object(err) : obj;
}

int mlx5dv_devx_obj_query(struct mlx5dv_devx_obj *obj, const void *in, size_t inlen, void *out, size_t outlen)
{
	int err = mlx5_enter(obj->context, "mlx5dv_devx_obj_query");

	if (!err)
		err = mlx5_query_admit(obj, in, inlen, outlen);
	if (!err)
		err = mlx5_query_run(obj, in, inlen, out, outlen);
	return said(err);
}

/* A counter that a flow names is busy. */
int mlx5dv_devx_obj_destroy(struct mlx5dv_devx_obj *obj)
{
	int err = mlx5_enter(obj->context, "mlx5dv_devx_obj_destroy");

	if (!err && __atomic_load_n(&obj->flows, __ATOMIC_ACQUIRE))
		err = EBUSY;
	if (!err) {
		mlx5_async_drain(obj);
		free(obj->counters);
		free(obj);
	}
	return said(err);
}

int mlx5dv_devx_general_cmd(struct ibv_context *context, const void *in, size_t inlen, void *out, size_t outlen)
{
	int err = mlx5_enter(context, "mlx5dv_devx_general_cmd");

	if (!err)
		err = mlx5_uverbs(context, inlen, outlen);
	if (!err && mlx5_get(in, 0, 16) != MLX5_CMD_QUERY_HCA_CAP)
		err = EINVAL;
	if (!err)
		err = mlx5_command(context, MLX5_CMD_QUERY_HCA_CAP, "QUERY_HCA_CAP");
	if (!err)
		err = mlx5_query_hca_cap(in, inlen, out, outlen);
	return said(err);
}
