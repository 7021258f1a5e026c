/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_cq.c: mlx5dv_init_obj(3), of completion queues: where the ring lies. */
#include "mlx5.h"

enum { CQE_BYTES = 64 };

MLX5_PUBLIC int mlx5dv_init_obj(struct mlx5dv_obj *obj, uint64_t obj_type)
{
	const struct ibvtest_device_ops *ops;
	struct mlx5dv_cq *out = obj->cq.out;
	struct ibvtest_ring ring;
	int err;

	if (!obj_type)
		return EINVAL;
	if (obj_type != MLX5DV_OBJ_CQ)
		return EOPNOTSUPP; /* here: libmlx5 has the others */
	err = mlx5_enter(obj->cq.in->context, "mlx5dv_init_obj");
	if (err)
		return err;
	ops = provider_ops(obj->cq.in->context->device);
	if (!ops->offers_devx(obj->cq.in->context->device))
		return EOPNOTSUPP;
	err = ops->cq_ring(obj->cq.in, &ring);
	if (err)
		return err;
	*out = (struct mlx5dv_cq){
		.buf = ring.buffer,
		.dbrec = ring.doorbell,
		.cqe_cnt = ring.entries,
		.cqe_size = CQE_BYTES,
		.cqn = ring.number,
	};
	return 0;
}
