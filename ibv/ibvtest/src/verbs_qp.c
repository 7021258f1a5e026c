/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_qp.c: queue pairs. rdma_run.c executes the work of RC, UC and UD ones. RAW_PACKET ones
 * carry flows and no data: posting to them is refused. */
#include <errno.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "uverbs/efa_ib.h"
#include "verbs_data.h"
#include "verbs_kernel.h"

#define MAX_WR (1 << 14)
#define MAX_INLINE 512

bool verbs_net_raw(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];
	if (syscall(SYS_capget, &head, data))
		return false;
	return data[0].effective & 1U << CAP_NET_RAW;
}

/* Drops the completions that were not polled. */
static void clean(struct soft_qp *q)
{
	verbs_cqe_clean((struct soft_cq *)q->qp.send_cq, q->qp.qp_num);
	verbs_cqe_clean((struct soft_cq *)q->qp.recv_cq, q->qp.qp_num);
}

static void release_qp(struct soft_object *o)
{
	struct soft_qp *q = RDMA_OUTER(o, struct soft_qp, object);
	rdma_link_remove(&q->card.wire);
	rdma_reset(&q->card);
	clean(q);
	rdma_queue_free(&q->card.sq);
	rdma_queue_free(&q->card.rq);
	verbs_pd_use(q->qp.pd, -1);
	pthread_mutex_destroy(&q->qp.mutex);
	pthread_cond_destroy(&q->qp.cond);
	free(q);
}

static int check(struct ibv_pd *pd, const struct ibv_qp_init_attr *a)
{
	const struct ibv_qp_cap *cap = &a->cap;
	switch (a->qp_type) {
	case IBV_QPT_RAW_PACKET:
		if (!verbs_net_raw())
			return EPERM;
		if (verbs_without(pd->context->device->name, "raw"))
			return EOPNOTSUPP;
		break;
	case IBV_QPT_RC:
	case IBV_QPT_UC:
	case IBV_QPT_UD:
		break;
	default:
		return EOPNOTSUPP;
	}
	if (!a->send_cq || !a->recv_cq || a->send_cq->context != pd->context || a->recv_cq->context != pd->context)
		return EINVAL;
	if (a->srq || cap->max_send_wr > MAX_WR || cap->max_recv_wr > MAX_WR || cap->max_send_sge > RDMA_MAX_SGE ||
	    cap->max_recv_sge > RDMA_MAX_SGE || cap->max_inline_data > MAX_INLINE)
		return EINVAL;
	return 0;
}

static struct soft_qp *make(struct ibv_pd *pd, const struct ibv_qp_init_attr *init)
{
	const struct ibv_qp_cap *cap = &init->cap;
	uint32_t bytes = verbs_send_bytes(init->qp_type, cap->max_send_sge, cap->max_inline_data);
	struct soft_qp *q = calloc(1, sizeof(*q));
	if (!q)
		return NULL;
	q->qp.context = pd->context;
	q->qp.qp_context = init->qp_context;
	q->qp.pd = pd;
	q->qp.send_cq = init->send_cq;
	q->qp.recv_cq = init->recv_cq;
	q->qp.qp_type = init->qp_type;
	if (!rdma_queue_make(&q->card.sq, cap->max_send_wr, cap->max_send_sge, cap->max_inline_data, bytes) &&
	    !rdma_queue_make(&q->card.rq, cap->max_recv_wr, cap->max_recv_sge, 0, 0) &&
	    verbs_kernel_qp(q))
		return q;
	rdma_queue_free(&q->card.sq);
	rdma_queue_free(&q->card.rq);
	free(q);
	return NULL;
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
	struct soft_qp *q = NULL;
	int err = verbs_begin(pd->context, "ibv_create_qp");
	if (err)
		return verbs_made(NULL, err);
	err = check(pd, init);
	if (!err && !(q = make(pd, init)))
		err = ENOMEM;
	if (q) {
		q->qp.state = IBV_QPS_RESET;
		pthread_mutex_init(&q->qp.mutex, NULL);
		pthread_cond_init(&q->qp.cond, NULL);
		q->init = *init;
		q->card.ops = &ops;
		q->card.run = rdma_run;
		q->card.wake = RDMA_NEVER;
		q->card.pd = pd;
		q->card.send_cq = init->send_cq;
		q->card.recv_cq = init->recv_cq;
		q->card.type = init->qp_type;
		q->card.signal_all = init->sq_sig_all;
		q->card.attr.cap = init->cap;
		uv_gid(&verbs_context_of(pd->context)->device->kernel, q->card.gid.raw);
		verbs_pd_use(pd, 1);
		q->qp.qp_num = q->card.number = rdma_wire_number();
		rdma_link_append(rdma_wire_qps(), &q->card.wire);
		verbs_adopt(pd->context, &q->object, release_qp);
	}
	uv_unlock();
	return verbs_made(q, err);
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
	verbs_drop(&((struct soft_qp *)qp)->object);
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
