/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_qp.c: queue pairs. rdma_run.c executes the work of RC, UC and UD ones. RAW_PACKET ones
 * carry flows and no data: posting to them is refused. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "uverbs/efa_ib.h"
#include "verbs_data.h"
#include "verbs_kernel.h"

#define MAX_WR (1 << 14)
#define MAX_INLINE 512

/* Drops the completions that were not polled. */
static void clean(struct soft_qp *q)
{
	verbs_cqe_clean((struct soft_cq *)q->qp.send_cq, q->qp.qp_num);
	verbs_cqe_clean((struct soft_cq *)q->qp.recv_cq, q->qp.qp_num);
}

static void release_qp(void *object)
{
	struct soft_qp *q = object;
	rdma_link_remove(&q->card.wire);
	if (q->qp.qp_num)
		clean(q);
	rdma_queue_free(&q->card.sq);
	rdma_queue_free(&q->card.rq);
	pthread_mutex_destroy(&q->qp.mutex);
	pthread_cond_destroy(&q->qp.cond);
}

static int check(struct ibv_pd *pd, const struct ibv_qp_init_attr *a)
{
	const struct ibv_qp_cap *cap = &a->cap;
	if (a->qp_type != IBV_QPT_RAW_PACKET && (a->qp_type < IBV_QPT_RC || a->qp_type > IBV_QPT_UD))
		return EOPNOTSUPP;
	if (!a->send_cq || !a->recv_cq || a->send_cq->context != pd->context || a->recv_cq->context != pd->context)
		return EINVAL;
	if (a->srq || cap->max_send_wr > MAX_WR || cap->max_recv_wr > MAX_WR || cap->max_send_sge > RDMA_MAX_SGE ||
	    cap->max_recv_sge > RDMA_MAX_SGE || cap->max_inline_data > MAX_INLINE)
		return EINVAL;
	return 0;
}

static bool complete(struct rdma_qp *q, bool receive, const struct rdma_cqe *e)
{
	return verbs_cq_push(receive ? q->recv_cq : q->send_cq, e);
}

static void event(struct rdma_qp *card, uint32_t type)
{
	if (verbs_soft_qp(card)->kernel)
		uv_qp_event(verbs_soft_qp(card)->kernel, type);
}

static void count(struct rdma_qp *card, uint32_t op, bool ok)
{
	if (verbs_soft_qp(card)->kernel)
		efa_count(verbs_soft_qp(card)->kernel, op, ok);
}

static uint32_t mtu(struct rdma_qp *card)
{
	return verbs_mtu(verbs_soft_qp(card)->qp.context);
}

static const struct rdma_ops ops = {.complete = complete, .event = event, .count = count, .mtu = mtu};

VERBS_PUBLIC struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct kernel_call call = KERNEL_CALL(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE);
	uint64_t *handle = kernel_object(&call, UVERBS_ATTR_CREATE_QP_HANDLE, 0);
	struct ibv_qp_cap has;
	uint32_t number;
	int err = verbs_gate(pd->context, "ibv_create_qp");
	if (!err)
		err = check(pd, init);
	struct soft_qp *q = err ? NULL : verbs_new(sizeof(*q));
	if (!q)
		return verbs_made(NULL, err ? err : ENOMEM);
	kernel_object(&call, UVERBS_ATTR_CREATE_QP_PD_HANDLE, pd->handle);
	kernel_object(&call, UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, init->send_cq->handle);
	kernel_object(&call, UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, init->recv_cq->handle);
	kernel_number(&call, UVERBS_ATTR_CREATE_QP_USER_HANDLE, (uintptr_t)q);
	kernel_in(&call, UVERBS_ATTR_CREATE_QP_CAP, &init->cap, sizeof(init->cap));
	kernel_number(&call, UVERBS_ATTR_CREATE_QP_TYPE, init->qp_type);
	kernel_out(&call, UVERBS_ATTR_CREATE_QP_RESP_CAP, &has, sizeof(has));
	kernel_out(&call, UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &number, sizeof(number));
	q->qp = (struct ibv_qp){.context = pd->context, .qp_context = init->qp_context, .pd = pd, .send_cq = init->send_cq,
				.recv_cq = init->recv_cq, .qp_type = init->qp_type};
	pthread_mutex_init(&q->qp.mutex, NULL);
	pthread_cond_init(&q->qp.cond, NULL);
	q->init = *init;
	q->card = (struct rdma_qp){.ops = &ops, .run = rdma_run, .wake = RDMA_NEVER, .send_cq = init->send_cq, .recv_cq = init->recv_cq,
				   .type = init->qp_type, .signal_all = init->sq_sig_all, .attr.cap = init->cap};
	rdma_link_init(&q->card.wire);
	if (!(q = verbs_make(pd->context, q, 0, &call, release_qp)))
		return NULL;
	q->qp.handle = *handle;
	q->qp.qp_num = number;
	return &q->qp;
}

VERBS_PUBLIC int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct kernel_call call = KERNEL_CALL(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY);
	struct ib_uverbs_destroy_qp_resp resp;
	int err = verbs_gate(qp->context, "ibv_destroy_qp");
	kernel_object(&call, UVERBS_ATTR_DESTROY_QP_HANDLE, qp->handle);
	kernel_out(&call, UVERBS_ATTR_DESTROY_QP_RESP, &resp, sizeof(resp));
	if (!err)
		err = verbs_kernel_call(qp->context, &call);
	if (err)
		return err;
	verbs_events_wait(VERBS_ACKED(qp, events_completed), resp.events_reported);
	verbs_drop(qp);
	return 0;
}

/* All or nothing: a refused call changes no attribute. */
VERBS_PUBLIC int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct soft_qp *q = (struct soft_qp *)qp;
	int err = verbs_begin(qp->context, "ibv_modify_qp");
	if (err)
		return err;
	err = rdma_modify(&q->card, attr, mask);
	if (!err && mask & IBV_QP_STATE) {
		qp->state = q->kernel->state = attr->qp_state;
		if (qp->state == IBV_QPS_RESET)
			clean(q);
	}
	uv_unlock();
	return err;
}

VERBS_PUBLIC int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	struct soft_qp *q = (struct soft_qp *)qp;
	(void)mask; /* a hint: the call may return more than requested */
	int err = verbs_begin(qp->context, "ibv_query_qp");
	if (err)
		return err;
	*attr = q->card.attr;
	attr->sq_psn = q->card.sq_psn;
	attr->rq_psn = q->card.rq_psn;
	attr->qp_state = attr->cur_qp_state = qp->state = q->card.state;
	*init = q->init;
	uv_unlock();
	return 0;
}
