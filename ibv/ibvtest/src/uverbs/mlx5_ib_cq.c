/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_ib_cq.c: completion queues. */
#include <errno.h>

#include "mlx5_hw.h"
#include "mlx5_ib.h"

enum { MAX_LOG = 22 };

/* The entries of a queue of at least cqe + 1: a power of two. */
static int log_entries(uint32_t cqe, unsigned *log)
{
	if (cqe >= 1U << MAX_LOG)
		return EINVAL;
	for (*log = 0; 1U << *log < cqe + 1; ++*log)
		;
	return 0;
}

/* Compression works for entries of both sizes, one format at a time. */
static int check_compression(const struct mlx5_ib_create_cq *c)
{
	uint8_t f = c->cqe_comp_res_format;
	if (c->cqe_comp_en != 1)
		return 0;
	return f == MLX5_HW_MINI_HASH || f == MLX5_HW_MINI_CSUM || f == MLX5_HW_MINI_CSUM_STRIDX ? 0 : EOPNOTSUPP;
}

int mlx5_ib_create_cq(struct uv_cq *cq, struct uv_call *call)
{
	struct mlx5_ib_cq *c = (struct mlx5_ib_cq *)cq;
	struct mlx5_ib_create_cq q;
	int err = uv_udata_in(call, &call->driver, &q, sizeof(q));
	if (err)
		return err;
	if (q.flags & ~(MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD | MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX |
			MLX5_IB_CREATE_CQ_FLAGS_REAL_TIME_TS) ||
	    (q.cqe_size != 64 && q.cqe_size != 128) || q.reserved0 || q.reserved1 || q.db_addr & 7)
		return EINVAL;
	if (q.flags & MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD && q.cqe_size != 128)
		return EOPNOTSUPP;
	if ((err = check_compression(&q)) || (err = log_entries(cq->cqe, &c->log)))
		return err;
	c->buf = q.buf_addr;
	c->db = q.db_addr;
	c->cqe_size = q.cqe_size;
	c->mini = q.cqe_comp_en == 1 ? q.cqe_comp_res_format : 0;
	c->cqn = mlx5_ib_number();
	cq->cqe = (1U << c->log) - 1;
	struct mlx5_ib_create_cq_resp r = {.cqn = c->cqn};
	err = uv_udata_out(call, &call->driver, &r, sizeof(r));
	return err ? err : mlx5_hw_cq_start(c);
}

int mlx5_ib_destroy_cq(struct uv_cq *cq, struct uv_call *call)
{
	(void)call;
	mlx5_hw_cq_stop((struct mlx5_ib_cq *)cq);
	return 0;
}
