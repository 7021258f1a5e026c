/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_cq.c: completion queues. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verbs_data.h"
#include "verbs_kernel.h"

static void release_cq(void *object)
{
	struct soft_cq *c = object;
	pthread_mutex_destroy(&c->cq.mutex);
	pthread_cond_destroy(&c->cq.cond);
	free(c->ring);
}

VERBS_PUBLIC struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
					  struct ibv_comp_channel *channel, int comp_vector)
{
	struct kernel_call call = KERNEL_CALL(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);
	uint64_t *handle = kernel_object(&call, UVERBS_ATTR_CREATE_CQ_HANDLE, 0);
	struct soft_cq *c = verbs_new(sizeof(*c));
	uint32_t has;
	int err = verbs_gate(context, "ibv_create_cq");
	if (!err && channel)
		err = EOPNOTSUPP;
	kernel_in(&call, UVERBS_ATTR_CREATE_CQ_CQE, &cqe, sizeof(cqe));
	kernel_number(&call, UVERBS_ATTR_CREATE_CQ_USER_HANDLE, (uintptr_t)c);
	kernel_in(&call, UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, &comp_vector, sizeof(comp_vector));
	kernel_out(&call, UVERBS_ATTR_CREATE_CQ_RESP_CQE, &has, sizeof(has));
	if (c) {
		c->cq.context = context;
		c->cq.cq_context = cq_context;
		pthread_mutex_init(&c->cq.mutex, NULL);
		pthread_cond_init(&c->cq.cond, NULL);
	}
	if (!(c = verbs_make(context, c, err, &call, release_cq)))
		return NULL;
	c->cq.handle = *handle;
	c->cq.cqe = has;
	return &c->cq;
}

VERBS_PUBLIC int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct kernel_call call = KERNEL_CALL(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY);
	struct ib_uverbs_destroy_cq_resp resp;
	int err = verbs_gate(cq->context, "ibv_destroy_cq");
	kernel_object(&call, UVERBS_ATTR_DESTROY_CQ_HANDLE, cq->handle);
	kernel_out(&call, UVERBS_ATTR_DESTROY_CQ_RESP, &resp, sizeof(resp));
	if (!err)
		err = verbs_kernel_call(cq->context, &call);
	if (err)
		return err;
	verbs_events_wait(VERBS_ACKED(cq, async_events_completed), resp.async_events_reported);
	verbs_drop(cq);
	return 0;
}

bool verbs_cq_push(struct soft_cq *c, const struct rdma_cqe *cqe)
{
	if (c->overrun)
		return true;
	/* the device reads the consumer index from the doorbell record, 24 bits */
	uint32_t ci = be32toh(__atomic_load_n(c->doorbell, __ATOMIC_ACQUIRE));
	if (((c->pi - ci) & 0xffffff) >= (uint32_t)c->cq.cqe) {
		c->overrun = true;
		if (c->kernel)
			uv_cq_event(c->kernel, IBV_EVENT_CQ_ERR);
		return false;
	}
	verbs_cqe_write(c, cqe);
	return true;
}

/* Translates a CQE as libmlx5 does; the posted request supplies the rest. false: its queue pair is
 * gone. */
static bool parse(struct soft_cq *c, const struct rdma_cqe *e, struct ibv_wc *wc)
{
	struct rdma_qp *q = rdma_qp_by_number(e->qpn);
	bool request = e->opcode == RDMA_CQE_REQ || e->opcode == RDMA_CQE_REQ_ERR;
	if (!q || (request ? q->send_cq : q->recv_cq) != c)
		return false;
	struct rdma_queue *queue = request ? &q->sq : &q->rq;
	uint64_t n = queue->block[e->counter & queue->mask];
	if (n < queue->tail || n >= queue->next)
		return false; /* left of the queue pair's life before its reset */
	memset(wc, 0, sizeof(*wc));
	wc->wr_id = rdma_wqe(queue, n)->wr_id;
	wc->qp_num = e->qpn;
	queue->tail = n + 1;
	switch (e->opcode) {
	case RDMA_CQE_REQ_ERR:
	case RDMA_CQE_RESP_ERR:
		/* only these fields are valid: the others hold a pattern that no operation leaves */
		memset((char *)wc + offsetof(struct ibv_wc, opcode), 0x5a, sizeof(wc->opcode));
		wc->status = rdma_status(e->syndrome);
		wc->vendor_err = e->vendor;
		return true;
	case RDMA_CQE_REQ:
		wc->opcode = e->wqe_opcode == RDMA_OP_RDMA_READ					 ? IBV_WC_RDMA_READ
			     : e->wqe_opcode == RDMA_OP_SEND || e->wqe_opcode == RDMA_OP_SEND_IMM ? IBV_WC_SEND
											  : IBV_WC_RDMA_WRITE;
		wc->byte_len = wc->opcode == IBV_WC_RDMA_READ ? e->length : 0;
		return true;
	case RDMA_CQE_RESP_WR_IMM:
		wc->opcode = IBV_WC_RECV_RDMA_WITH_IMM;
		break;
	default:
		wc->opcode = IBV_WC_RECV;
	}
	wc->byte_len = e->length;
	wc->src_qp = e->src_qp;
	wc->wc_flags = e->grh ? IBV_WC_GRH : 0;
	if (e->opcode != RDMA_CQE_RESP_SEND) {
		wc->wc_flags |= IBV_WC_WITH_IMM;
		wc->imm_data = e->imm;
	}
	return true;
}

/* As in libmlx5 and libefa this reads memory: on a device that is gone it returns the last
 * completions there, without an error. If mlx5dv_init_obj has exposed the ring, polling moves its
 * doorbell record, too. */
int verbs_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	struct soft_cq *c = (struct soft_cq *)cq;
	struct rdma_cqe e;
	int taken = 0;
	if (verbs_call(cq->context->device->name, "ibv_poll_cq") || n < 0)
		return -1;
	uv_lock();
	bool bad = c->overrun;
	while (!bad && taken < n && verbs_cqe_read(c, &e)) {
		bad = !parse(c, &e, &wc[taken]);
		taken++;
	}
	verbs_cqe_consumed(c);
	uv_unlock();
	return bad ? -1 : taken;
}

int verbs_cq_ring(struct ibv_cq *cq, struct ibvtest_ring *ring)
{
	struct soft_cq *c = (struct soft_cq *)cq;
	uv_lock();
	c->direct = true;
	*ring = (struct ibvtest_ring){c->ring, c->doorbell, 1U << c->log, c->number};
	uv_unlock();
	return 0;
}
