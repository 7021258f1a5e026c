/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_driver.c: the kernel's driver of the library's devices: mlx5's flows, counters and DevX, EFA's completion
 * counters, and queues that the library itself fills. The kernel's core makes its checks before it calls an operation. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "uverbs/efa_ib.h"
#include "uverbs/mlx5_hw.h"
#include "uverbs/mlx5_ib_flow.h"
#include "verbs_data.h"

#define MAX_CQE (1 << 16)
#define ACCESS                                                                                                         \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |          \
	 IB_UVERBS_ACCESS_OPTIONAL_RANGE)

static int alloc_pd(struct uv_pd *pd, struct uv_call *call)
{
	(void)pd, (void)call;
	return 0;
}

/* The keys of a region differ, so that a program that confuses them fails. */
static int reg_user_mr(struct uv_mr *mr, struct uv_call *call)
{
	struct rdma_mr *m = &((struct mlx5_ib_mr *)mr)->card;
	(void)call;
	if (mr->access & ~ACCESS)
		return EOPNOTSUPP;
	mr->lkey = rdma_wire_key();
	mr->rkey = rdma_wire_key();
	*m = (struct rdma_mr){.pd = mr->pd, .addr = mr->start, .length = mr->length, .iova = mr->iova, .lkey = mr->lkey,
			      .rkey = mr->rkey, .access = mr->access};
	rdma_link_append(rdma_wire_mrs(), &m->wire);
	return 0;
}

static int dereg_mr(struct uv_mr *mr, struct uv_call *call)
{
	(void)call;
	rdma_link_remove(&((struct mlx5_ib_mr *)mr)->card.wire);
	return 0;
}

static int create_ah(struct uv_ah *ah, struct uv_call *call)
{
	(void)call;
	return ah->attr.is_global ? 0 : EINVAL;
}

/* As mlx5: the next power of two above the requested size, of which one entry stays unused. The
 * doorbell record has a cache line of its own behind the ring. */
static int create_cq(struct uv_cq *cq, struct uv_call *call)
{
	struct soft_cq *c = (struct soft_cq *)(uintptr_t)cq->object.user_handle;
	void *memory;
	(void)call;
	if (cq->cqe > MAX_CQE)
		return EINVAL;
	while (1U << c->log < cq->cqe + 1)
		c->log++;
	size_t size = (size_t)RDMA_CQE_BYTES << c->log;
	if (posix_memalign(&memory, 4096, size + RDMA_CQE_BYTES))
		return ENOMEM;
	memset(memory, 0, size + RDMA_CQE_BYTES);
	c->ring = memory;
	c->doorbell = (uint32_t *)(void *)(c->ring + size);
	verbs_cqe_init(c);
	cq->cqe = (1 << c->log) - 1;
	c->number = rdma_wire_number();
	c->kernel = cq;
	return 0;
}

/* The objects of the kernel end before the library's, or with the device. */
static int destroy_cq(struct uv_cq *cq, struct uv_call *call)
{
	(void)call;
	((struct soft_cq *)(uintptr_t)cq->object.user_handle)->kernel = NULL;
	return 0;
}

static int create_qp(struct uv_qp *qp, struct uv_call *call)
{
	struct soft_qp *q = (struct soft_qp *)(uintptr_t)qp->object.user_handle;
	if (qp->type == IBV_QPT_RAW_PACKET && uv_without(call->device, "raw"))
		return EOPNOTSUPP;
	if (rdma_queue_make(&q->card.sq, qp->cap.max_send_wr, qp->cap.max_send_sge, qp->cap.max_inline_data,
			    rdma_send_bytes(qp->type, qp->cap.max_send_sge, qp->cap.max_inline_data)) ||
	    rdma_queue_make(&q->card.rq, qp->cap.max_recv_wr, qp->cap.max_recv_sge, 0, 0))
		return ENOMEM;
	q->kernel = qp;
	q->card.pd = qp->pd;
	uv_gid(call->device, q->card.gid.raw);
	qp->qp_num = q->card.number = rdma_wire_number();
	rdma_link_append(rdma_wire_qps(), &q->card.wire);
	return 0;
}

/* Outstanding requests stay outstanding, and the peers get no reply. */
static int destroy_qp(struct uv_qp *qp, struct uv_call *call)
{
	struct soft_qp *q = (struct soft_qp *)(uintptr_t)qp->object.user_handle;
	(void)call;
	q->kernel = NULL;
	q->card.gone = true;
	q->card.wake = RDMA_NEVER;
	return 0;
}

static const struct uv_device_ops ops = {
	.driver_id = RDMA_DRIVER_MLX5,
	.num_comp_vectors = 1,
	.size_ib_ucontext = sizeof(struct mlx5_ib_ucontext),
	.size_ib_pd = sizeof(struct uv_pd),
	.size_ib_mr = sizeof(struct mlx5_ib_mr),
	.size_ib_ah = sizeof(struct uv_ah),
	.size_ib_cq = sizeof(struct uv_cq),
	.size_ib_qp = sizeof(struct uv_qp),
	.size_ib_flow = sizeof(struct mlx5_ib_flow),
	.size_ib_counters = sizeof(struct mlx5_ib_mcounters),
	.size_ib_comp_cntr = sizeof(struct efa_comp_cntr),
	.alloc_pd = alloc_pd,
	.reg_user_mr = reg_user_mr,
	.dereg_mr = dereg_mr,
	.create_ah = create_ah,
	.create_cq = create_cq,
	.destroy_cq = destroy_cq,
	.create_qp = create_qp,
	.destroy_qp = destroy_qp,
	.create_flow = mlx5_ib_create_flow,
	.destroy_flow = mlx5_ib_destroy_flow,
	.create_counters = mlx5_ib_create_counters,
	.destroy_counters = mlx5_ib_destroy_counters,
	.read_counters = mlx5_ib_read_counters,
	.query_comp_cntr_caps = efa_query_comp_cntr_caps,
	.create_comp_cntr = efa_create_comp_cntr,
	.destroy_comp_cntr = efa_destroy_comp_cntr,
	.set_comp_cntr = efa_set_comp_cntr,
	.inc_comp_cntr = efa_inc_comp_cntr,
	.qp_attach_comp_cntr = efa_qp_attach_comp_cntr,
};

static const struct uv_method *const methods[] = {mlx5_ib_flow_methods, mlx5_ib_devx_methods, efa_comp_cntr_methods, NULL};
const struct uv_driver verbs_driver = {"", &ops, methods};
