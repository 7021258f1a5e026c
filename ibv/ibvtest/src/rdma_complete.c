/* SPDX-License-Identifier: Apache-2.0
 *
 * rdma_complete.c: how a work request ends: its completion counter moves, and an entry is written
 * unless the request succeeded unsignaled. */
#include <string.h>

#include "rdma_qp.h"

void rdma_count(struct rdma_qp *q, uint32_t op, bool ok)
{
	if (q->ops->count)
		q->ops->count(q, op, ok);
}

/* By the opcode of the request. */
static const struct {
	uint8_t opcode;
	uint32_t op;
} ops[] = {
	[IBV_WR_RDMA_WRITE] = {RDMA_OP_RDMA_WRITE, IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE},
	[IBV_WR_RDMA_WRITE_WITH_IMM] = {RDMA_OP_RDMA_WRITE_IMM, IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE},
	[IBV_WR_SEND] = {RDMA_OP_SEND, IBV_QP_ATTACH_COMP_CNTR_OP_SEND},
	[IBV_WR_SEND_WITH_IMM] = {RDMA_OP_SEND_IMM, IBV_QP_ATTACH_COMP_CNTR_OP_SEND},
	[IBV_WR_RDMA_READ] = {RDMA_OP_RDMA_READ, IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ},
};

/* Of a vendor that there is not: it says the status again, so that a reader that takes it from
 * elsewhere finds out. */
static uint8_t vendor(uint32_t status)
{
	return status ? 0x80 | status : 0;
}

/* A completion queue that overruns cannot be used any more, and neither can the queue pairs that complete into it. */
static void push(struct rdma_qp *of, bool receive, const struct rdma_cqe *e)
{
	void *cq = receive ? of->recv_cq : of->send_cq;
	if (of->ops->complete(of, receive, e))
		return;
	struct rdma_link *qps = rdma_wire_qps();
	for (struct rdma_link *l = qps->next; l != qps; l = l->next) {
		struct rdma_qp *q = RDMA_OUTER(l, struct rdma_qp, wire);
		if ((q->send_cq == cq || q->recv_cq == cq) && q->state != IBV_QPS_RESET)
			rdma_fail(q, IBV_QPS_ERR);
	}
}

static struct rdma_cqe entry(const struct rdma_qp *q, const struct rdma_wqe *w, const struct rdma_ended *end)
{
	struct rdma_cqe e = {
		.syndrome = rdma_syndrome(end->status),
		.vendor = vendor(end->status),
		.counter = w->counter,
		.qpn = q->number,
		.uidx = q->uidx,
		.scattered = end->scattered,
	};
	memcpy(e.data, end->data, end->scattered);
	return e;
}

/* The request at the head of the send queue is done. */
void rdma_complete_send(struct rdma_qp *q, const struct rdma_ended *end)
{
	struct rdma_wqe *w = rdma_wqe(&q->sq, q->sq.next++);
	struct rdma_cqe e = entry(q, w, end);
	e.opcode = end->status ? RDMA_CQE_REQ_ERR : RDMA_CQE_REQ;
	e.wqe_opcode = ops[w->opcode].opcode;
	e.length = w->opcode == IBV_WR_RDMA_READ ? w->length : 0;
	rdma_count(q, ops[w->opcode].op, !end->status);
	if (end->status || q->signal_all || w->flags & IBV_SEND_SIGNALED)
		push(q, false, &e);
}

/* So is the one at the head of the receive queue. */
void rdma_complete_recv(struct rdma_qp *q, const struct rdma_ended *end)
{
	struct rdma_cqe e = entry(q, rdma_wqe(&q->rq, q->rq.next++), end);
	e.opcode = end->status				     ? RDMA_CQE_RESP_ERR
		   : end->opcode == IBV_WC_RECV_RDMA_WITH_IMM ? RDMA_CQE_RESP_WR_IMM
		   : end->with_imm			     ? RDMA_CQE_RESP_SEND_IMM
							     : RDMA_CQE_RESP_SEND;
	e.length = end->length;
	e.imm = end->imm;
	e.src_qp = end->src_qp;
	e.grh = end->grh;
	e.solicited = end->solicited;
	rdma_count(q, IBV_QP_ATTACH_COMP_CNTR_OP_RECV, !end->status);
	push(q, true, &e);
}

/* In ERR both queues flush, in SQE the send queue alone. */
void rdma_flush(struct rdma_qp *q)
{
	const struct rdma_ended flushed = {.status = IBV_WC_WR_FLUSH_ERR};
	while ((q->state == IBV_QPS_ERR || q->state == IBV_QPS_SQE) && q->sq.next < q->sq.head)
		rdma_complete_send(q, &flushed);
	while (q->state == IBV_QPS_ERR && q->rq.next < q->rq.head)
		rdma_complete_recv(q, &flushed);
}

void rdma_fail(struct rdma_qp *q, uint32_t state)
{
	q->state = state;
	q->wake = RDMA_NEVER;
	rdma_flush(q);
}
