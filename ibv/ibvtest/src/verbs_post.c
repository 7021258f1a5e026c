/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_post.c: ibv_post_send(3) and ibv_post_recv(3). Faults that are visible at once are
 * refused (EINVAL, and ENOMEM for a full queue); other faults appear in the completion. */
#include <errno.h>
#include <string.h>

#include "verbs_data.h"

#define MAX_MESSAGE (1U << 30) /* as ibv_query_port says */

/* The table of ibv_post_send(3). */
static bool offers(uint32_t type, uint32_t opcode)
{
	switch (opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return type == IBV_QPT_RC || type == IBV_QPT_UC || type == IBV_QPT_UD;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return type == IBV_QPT_RC || type == IBV_QPT_UC;
	case IBV_WR_RDMA_READ:
		return type == IBV_QPT_RC;
	default:
		return false;
	}
}

static uint64_t total(const struct ibv_sge *sge, int n)
{
	uint64_t length = 0;
	for (int i = 0; i < n; i++)
		length += sge[i].length;
	return length;
}

static int check_send(struct soft_qp *q, const struct ibv_send_wr *wr)
{
	uint32_t type = q->qp.qp_type;
	if (q->card.state == IBV_QPS_RESET || q->card.state == IBV_QPS_INIT || q->card.state == IBV_QPS_RTR)
		return EINVAL;
	if (!offers(type, wr->opcode) || wr->num_sge < 0 || (uint32_t)wr->num_sge > q->card.sq.max_sge)
		return EINVAL;
	if (wr->send_flags & ~(IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE))
		return EINVAL;
	uint64_t length = total(wr->sg_list, wr->num_sge);
	if (length > MAX_MESSAGE)
		return EINVAL;
	if (wr->send_flags & IBV_SEND_INLINE && (wr->opcode == IBV_WR_RDMA_READ || length > q->card.sq.max_inline))
		return EINVAL;
	return type == IBV_QPT_UD && !wr->wr.ud.ah ? EINVAL : 0;
}

/* Copies the whole request: memory that the application may reuse when this returns, AHs included,
 * is not read again. */
static int post_send(struct soft_qp *q, const struct ibv_send_wr *wr, uint64_t ready)
{
	int err = check_send(q, wr);
	bool inlined = wr->send_flags & IBV_SEND_INLINE;
	if (err)
		return err;
	uint32_t length = total(wr->sg_list, wr->num_sge);
	struct rdma_wqe *w =
		rdma_queue_take(&q->card.sq, rdma_send_bytes(q->qp.qp_type, inlined ? 0 : wr->num_sge, inlined ? length : 0));
	if (!w)
		return ENOMEM;
	w->wr_id = wr->wr_id;
	w->opcode = wr->opcode;
	w->flags = wr->send_flags;
	w->imm = wr->imm_data;
	w->length = length;
	w->ready = ready;
	if (q->qp.qp_type == IBV_QPT_UD) {
		const struct soft_ah *ah = (const struct soft_ah *)wr->wr.ud.ah;
		w->to = ah->attr;
		if (ah->ah.pd != q->qp.pd)
			w->fault = IBV_WC_LOC_QP_OP_ERR;
		w->remote_qpn = wr->wr.ud.remote_qpn;
		w->remote_qkey = wr->wr.ud.remote_qkey;
	} else {
		w->remote_addr = wr->wr.rdma.remote_addr;
		w->rkey = wr->wr.rdma.rkey;
	}
	if (inlined) {
		uint8_t *to = rdma_wqe_data(&q->card.sq, q->card.sq.head);
		for (int i = 0; i < wr->num_sge; to += wr->sg_list[i++].length)
			memcpy(to, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
	} else if (wr->num_sge) {
		w->sges = wr->num_sge;
		memcpy(rdma_wqe_sge(&q->card.sq, q->card.sq.head), wr->sg_list, wr->num_sge * sizeof(*wr->sg_list));
	}
	q->card.sq.head++;
	return 0;
}

int verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct soft_qp *q = (struct soft_qp *)qp;
	int err = verbs_gate(qp->context, "ibv_post_send");
	if (!err && qp->qp_type == IBV_QPT_RAW_PACKET)
		err = EOPNOTSUPP;
	if (err) {
		*bad = wr;
		return err;
	}
	uint64_t delay = verbs_delay(qp->context->device->name, "WQE");
	uv_lock();
	for (; wr && !err; wr = err ? wr : wr->next)
		err = post_send(q, wr, delay ? rdma_now() + delay : 0);
	if (err)
		*bad = wr;
	rdma_flush(&q->card);
	rdma_run(&q->card);
	uv_unlock();
	return err;
}

static int post_recv(struct soft_qp *q, const struct ibv_recv_wr *wr)
{
	if (q->card.state == IBV_QPS_RESET || wr->num_sge < 0 || (uint32_t)wr->num_sge > q->card.rq.max_sge)
		return EINVAL;
	struct rdma_wqe *w = rdma_queue_take(&q->card.rq, 0);
	if (!w)
		return ENOMEM;
	w->wr_id = wr->wr_id;
	w->sges = wr->num_sge;
	if (wr->num_sge)
		memcpy(rdma_wqe_sge(&q->card.rq, q->card.rq.head), wr->sg_list, wr->num_sge * sizeof(*wr->sg_list));
	q->card.rq.head++;
	return 0;
}

int verbs_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct soft_qp *q = (struct soft_qp *)qp;
	int err = verbs_gate(qp->context, "ibv_post_recv");
	if (!err && qp->qp_type == IBV_QPT_RAW_PACKET)
		err = EOPNOTSUPP;
	if (err) {
		*bad = wr;
		return err;
	}
	uv_lock();
	for (; wr && !err; wr = err ? wr : wr->next)
		err = post_recv(q, wr);
	if (err)
		*bad = wr;
	rdma_flush(&q->card);
	rdma_run_peer(&q->card); /* which may have waited for a receive */
	uv_unlock();
	return err;
}
