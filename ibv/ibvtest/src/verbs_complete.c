/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_complete.c: how a work request ends: its completion counter moves, and a CQE is written
 * unless the request succeeded unsignaled. Counters ignore the signaled flag: they count every
 * request (so does libfabric, whose FI_SELECTIVE_COMPLETION does not affect them). */
#include "verbs_data.h"

void verbs_count_set(struct soft_count *count, uint64_t value)
{
	count->value = value;
	__atomic_store_n(count->word, value, __ATOMIC_RELEASE);
}

void verbs_count_add(struct soft_count *count, uint64_t amount, uint64_t max)
{
	uint64_t room = max - count->value;
	verbs_count_set(count, amount <= room ? count->value + amount : amount - room - 1);
}

void verbs_count_op(struct soft_qp *q, uint32_t op, bool ok)
{
	struct soft_comp_cntr *c = q->counters[__builtin_ctz(op)];
	if (c)
		verbs_count_add(ok ? &c->completions : &c->errors, 1, c->max);
}

/* By the opcode of the request. */
static const struct {
	uint8_t opcode;
	uint32_t op;
} ops[] = {
	[IBV_WR_RDMA_WRITE] = {SOFT_OP_RDMA_WRITE, IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE},
	[IBV_WR_RDMA_WRITE_WITH_IMM] = {SOFT_OP_RDMA_WRITE_IMM, IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE},
	[IBV_WR_SEND] = {SOFT_OP_SEND, IBV_QP_ATTACH_COMP_CNTR_OP_SEND},
	[IBV_WR_SEND_WITH_IMM] = {SOFT_OP_SEND_IMM, IBV_QP_ATTACH_COMP_CNTR_OP_SEND},
	[IBV_WR_RDMA_READ] = {SOFT_OP_RDMA_READ, IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ},
};

/* Of a vendor that there is not: it says the status again, so that a reader that takes it from
 * elsewhere finds out. */
static uint8_t vendor(uint32_t status)
{
	return status ? 0x80 | status : 0;
}

/* A completion queue that overruns cannot be used any more, and neither can the queue pairs that complete into it. */
static void push(struct ibv_cq *cq, const struct soft_cqe *e)
{
	if (verbs_cq_push((struct soft_cq *)cq, e))
		return;
	struct soft_link *qps = verbs_wire_qps();
	for (struct soft_link *l = qps->next; l != qps; l = l->next) {
		struct soft_qp *q = VERBS_OUTER(l, struct soft_qp, wire);
		if ((q->qp.send_cq == cq || q->qp.recv_cq == cq) && q->state != IBV_QPS_RESET)
			verbs_fail(q, IBV_QPS_ERR);
	}
}

/* The request at the head of the send queue is done. */
void verbs_complete_send(struct soft_qp *q, uint32_t status)
{
	struct soft_wqe *w = verbs_wqe(&q->sq, q->sq.next++);
	struct soft_cqe e = {
		.opcode = status ? SOFT_CQE_REQ_ERR : SOFT_CQE_REQ,
		.wqe_opcode = ops[w->opcode].opcode,
		.syndrome = verbs_syndrome(status),
		.vendor = vendor(status),
		.counter = w->counter,
		.qpn = q->qp.qp_num,
		.length = w->opcode == IBV_WR_RDMA_READ ? w->length : 0,
	};
	verbs_count_op(q, ops[w->opcode].op, !status);
	if (status || q->init.sq_sig_all || w->flags & IBV_SEND_SIGNALED)
		push(q->qp.send_cq, &e);
}

/* So is the one at the head of the receive queue. */
void verbs_complete_recv(struct soft_qp *q, const struct soft_received *r)
{
	struct soft_wqe *w = verbs_wqe(&q->rq, q->rq.next++);
	struct soft_cqe e = {
		.opcode = r->status				     ? SOFT_CQE_RESP_ERR
			  : r->opcode == IBV_WC_RECV_RDMA_WITH_IMM ? SOFT_CQE_RESP_WR_IMM
			  : r->with_imm				     ? SOFT_CQE_RESP_SEND_IMM
								     : SOFT_CQE_RESP_SEND,
		.syndrome = verbs_syndrome(r->status),
		.vendor = vendor(r->status),
		.counter = w->counter,
		.qpn = q->qp.qp_num,
		.length = r->length,
		.imm = r->imm,
		.src_qp = r->src_qp,
		.grh = r->grh,
		.solicited = r->solicited,
	};
	verbs_count_op(q, IBV_QP_ATTACH_COMP_CNTR_OP_RECV, !r->status);
	push(q->qp.recv_cq, &e);
}

/* In ERR both queues flush, in SQE the send queue alone. */
void verbs_flush(struct soft_qp *q)
{
	while ((q->state == IBV_QPS_ERR || q->state == IBV_QPS_SQE) && q->sq.next < q->sq.head)
		verbs_complete_send(q, IBV_WC_WR_FLUSH_ERR);
	while (q->state == IBV_QPS_ERR && q->rq.next < q->rq.head)
		verbs_complete_recv(q, &(struct soft_received){.status = IBV_WC_WR_FLUSH_ERR});
}

void verbs_fail(struct soft_qp *q, uint32_t state)
{
	q->state = state;
	q->wake = SOFT_NEVER;
	verbs_flush(q);
}
