/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5.c: two verbs of libmlx5 that fail without the kernel: a look at the memory of a queue, and a read of a
 * descriptor. */
#include "shim.h"

#define REAL(verb) SHIM_REAL("libmlx5.so.1", verb)

/* The beginning of struct mlx5dv_obj. */
struct mlx5dv_obj {
	struct {
		void *in, *out;
	} qp;
	struct {
		struct ibv_cq *in;
		void *out;
	} cq;
};
enum { MLX5DV_OBJ_CQ = 1 << 1 };

struct mlx5dv_devx_cmd_comp;

SHIM_PUBLIC int mlx5dv_init_obj(struct mlx5dv_obj *obj, uint64_t type);
SHIM_PUBLIC int mlx5dv_devx_get_async_cmd_comp(struct mlx5dv_devx_cmd_comp *comp, void *answer, size_t size);

int mlx5dv_init_obj(struct mlx5dv_obj *obj, uint64_t type)
{
	int err = 0;
	if (type == MLX5DV_OBJ_CQ) {
		err = shim_verb(obj->cq.in->context, "mlx5dv_init_obj");
		if (!err && shim_without(obj->cq.in->context, "cq_ring"))
			err = EOPNOTSUPP;
	}
	return err ? err : REAL(mlx5dv_init_obj)(obj, type);
}

int mlx5dv_devx_get_async_cmd_comp(struct mlx5dv_devx_cmd_comp *comp, void *answer, size_t size)
{
	int err = shim_verb(NULL, "mlx5dv_devx_get_async_cmd_comp");
	return err ? err : REAL(mlx5dv_devx_get_async_cmd_comp)(comp, answer, size);
}
