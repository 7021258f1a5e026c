/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_command.c: firmware commands of a context (mlx5_firmware.c), behind the checks that the kernel makes of them. */
#include <errno.h>
#include <stdlib.h>

#include "mlx5.h"

enum {
	HEADER_BYTES = 16, /* uverbs requires this of every command, and of every output */
	MOST_BYTES = UINT16_MAX,
};

/* uverbs takes commands of a context that was opened for DevX, of at least a header and at
 * most 64 KiB. */
int mlx5_uverbs(struct ibv_context *context, size_t inlen, size_t outlen)
{
	const struct ibvtest_device_ops *ops = mlx5_ops(context->device);

	if (!ops->is_devx(context))
		return EINVAL;
	return inlen < HEADER_BYTES || outlen < HEADER_BYTES || inlen > MOST_BYTES || outlen > MOST_BYTES ? EINVAL : 0;
}

int mlx5_new_counters(struct ibv_context *context, const uint8_t *in, size_t inlen, void *out, size_t outlen,
		      struct mlx5dv_devx_obj **made)
{
	struct mlx5dv_devx_obj *obj = calloc(1, sizeof *obj);
	int err = obj ? mlx5_command(context, MLX5_CMD_ALLOC_FLOW_COUNTER, "ALLOC_FLOW_COUNTER") : ENOMEM;

	if (!err)
		err = mlx5_alloc_flow_counter(in, inlen, out, outlen, &obj->counters);
	if (err) {
		free(obj);
		return err;
	}
	obj->context = context;
	*made = obj;
	return 0;
}

int mlx5_query_admit(struct mlx5dv_devx_obj *obj, const uint8_t *in, size_t inlen, size_t outlen)
{
	int err = mlx5_uverbs(obj->context, inlen, outlen);
	uint32_t id;

	if (err)
		return err;
	if (mlx5_get(in, 0, 16) != MLX5_CMD_QUERY_FLOW_COUNTER || inlen < 32)
		return EINVAL; /* uverbs reads the id itself */
	id = mlx5_get(in, 0xe0, 32);
	return id < obj->counters->id || id >= obj->counters->id + obj->counters->n ? EINVAL : 0; /* another object's */
}

static int copy_counters(void *context, struct nic_counter *from, struct nic_counter *to, unsigned n, int clear)
{
	return mlx5_ops(((struct ibv_context *)context)->device)->counters_copy(context, from, to, n, clear);
}

int mlx5_query_run(struct mlx5dv_devx_obj *obj, const uint8_t *in, size_t inlen, void *out, size_t outlen)
{
	int err = mlx5_command(obj->context, MLX5_CMD_QUERY_FLOW_COUNTER, "QUERY_FLOW_COUNTER");

	return err ? err : mlx5_query_flow_counter(obj->counters, in, inlen, out, outlen, copy_counters, obj->context);
}
