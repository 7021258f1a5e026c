/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_ib.h: the declarations that the files of the mlx5 driver share. Each file has a table of methods, which
 * mlx5_ib_main.c lists, and operations, which mlx5_ib_ops names. */
#ifndef MLX5_IB_H
#define MLX5_IB_H

#include "mlx5_abi_kernel.h"
#include "uverbs.h"

struct mlx5_ib_ucontext {
	struct uv_ucontext ibucontext;
	uint32_t flags; /* MLX5_IB_ALLOC_UCTX_DEVX: DevX is allowed */
	uint64_t lib_caps;
};

struct mlx5_ib_pd {
	struct uv_pd ibpd;
	uint32_t pdn;
};

static inline struct mlx5_ib_ucontext *to_mucontext(const struct uv_file *file)
{
	return (struct mlx5_ib_ucontext *)file->context;
}

/* mlx5_ib_number returns a number that no object of the device had: PD, QP, CQ, UAR and MR take theirs here. */
uint32_t mlx5_ib_number(void);

extern const struct uv_method mlx5_ib_uar_methods[];
/* mlx5_ib_has_uar: has the file allocated the page? */
bool mlx5_ib_has_uar(const struct uv_file *file, uint32_t page);

/* mlx5_ib_cq.c and mlx5_ib_qp.c: operations of struct uv_device_ops. */
int mlx5_ib_create_cq(struct uv_cq *cq, struct uv_call *call);
int mlx5_ib_destroy_cq(struct uv_cq *cq, struct uv_call *call);
int mlx5_ib_create_qp(struct uv_qp *qp, struct uv_call *call);
int mlx5_ib_modify_qp(struct uv_qp *qp, const struct ib_uverbs_modify_qp *attr, uint32_t mask, struct uv_call *call);
int mlx5_ib_query_qp(struct uv_qp *qp, struct ib_uverbs_query_qp_resp *r, uint32_t mask);
int mlx5_ib_destroy_qp(struct uv_qp *qp, struct uv_call *call);

#endif
