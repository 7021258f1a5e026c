/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_qp.c: queue pairs. verbs_run.c executes the work of RC, UC and UD ones. RAW_PACKET ones
 * carry flows and no data: posting to them is refused. */
#include <errno.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "verbs_data.h"

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

/* Drops the posted requests, and their completions that were not polled. */
static void reset(struct soft_qp *q)
{
	q->state = IBV_QPS_RESET;
	q->wake = SOFT_NEVER;
	verbs_queue_clear(&q->sq);
	verbs_queue_clear(&q->rq);
	verbs_cqe_clean((struct soft_cq *)q->qp.send_cq, q->qp.qp_num);
	verbs_cqe_clean((struct soft_cq *)q->qp.recv_cq, q->qp.qp_num);
}

/* The device goes: outstanding requests stay outstanding, and the peers get no reply. */
static void stop_qp(struct soft_object *o)
{
	struct soft_qp *q = VERBS_OUTER(o, struct soft_qp, object);
	verbs_wire_lock();
	q->gone = true;
	q->wake = SOFT_NEVER;
	verbs_wire_unlock();
}

static void release_qp(struct soft_object *o)
{
	struct soft_qp *q = VERBS_OUTER(o, struct soft_qp, object);
	verbs_wire_lock();
	soft_link_remove(&q->wire);
	reset(q);
	verbs_wire_unlock();
	for (size_t i = 0; i < sizeof(q->counters) / sizeof(q->counters[0]); i++)
		if (q->counters[i])
			q->counters[i]->object.users--;
	verbs_queue_free(&q->sq);
	verbs_queue_free(&q->rq);
	verbs_pd_use(q->qp.pd, -1);
	verbs_cq_use(q->qp.send_cq, -1);
	verbs_cq_use(q->qp.recv_cq, -1);
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
	if (a->srq || cap->max_send_wr > MAX_WR || cap->max_recv_wr > MAX_WR || cap->max_send_sge > SOFT_MAX_SGE ||
	    cap->max_recv_sge > SOFT_MAX_SGE || cap->max_inline_data > MAX_INLINE)
		return EINVAL;
	return 0;
}

static struct soft_qp *make(const struct ibv_qp_init_attr *init)
{
	const struct ibv_qp_cap *cap = &init->cap;
	uint32_t bytes = verbs_send_bytes(init->qp_type, cap->max_send_sge, cap->max_inline_data);
	struct soft_qp *q = calloc(1, sizeof(*q));
	if (!q)
		return NULL;
	if (!verbs_queue_make(&q->sq, cap->max_send_wr, cap->max_send_sge, cap->max_inline_data, bytes) &&
	    !verbs_queue_make(&q->rq, cap->max_recv_wr, cap->max_recv_sge, 0, 0)) {
		q->wake = SOFT_NEVER;
		q->run = verbs_run;
		return q;
	}
	verbs_queue_free(&q->sq);
	free(q);
	return NULL;
}

VERBS_PUBLIC struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct soft_qp *q = NULL;
	int err = verbs_begin(pd->context, "ibv_create_qp");
	if (err)
		return verbs_made(NULL, err);
	err = check(pd, init);
	if (!err && !(q = make(init)))
		err = ENOMEM;
	if (q) {
		q->qp.context = pd->context;
		q->qp.qp_context = init->qp_context;
		q->qp.pd = pd;
		q->qp.send_cq = init->send_cq;
		q->qp.recv_cq = init->recv_cq;
		q->qp.handle = q->object.handle = verbs_handle(pd->context);
		q->qp.qp_type = init->qp_type;
		q->qp.state = IBV_QPS_RESET;
		pthread_mutex_init(&q->qp.mutex, NULL);
		pthread_cond_init(&q->qp.cond, NULL);
		q->init = *init;
		q->attr.cap = init->cap;
		verbs_pd_use(pd, 1);
		verbs_cq_use(init->send_cq, 1);
		verbs_cq_use(init->recv_cq, 1);
		verbs_wire_lock();
		q->qp.qp_num = verbs_wire_number();
		soft_link_append(verbs_wire_qps(), &q->wire);
		verbs_wire_unlock();
		q->object.stop = stop_qp;
		verbs_adopt(pd->context, &q->object, release_qp);
	}
	verbs_leave(pd->context);
	return verbs_made(q, err);
}

VERBS_PUBLIC int ibv_destroy_qp(struct ibv_qp *qp)
{
	return verbs_destroy(qp->context, "ibv_destroy_qp", &((struct soft_qp *)qp)->object);
}

void verbs_qp_use(struct ibv_qp *qp, int by)
{
	((struct soft_qp *)qp)->object.users += by;
}

/* assign takes over the attributes of mask. */
static void assign(struct ibv_qp_attr *to, const struct ibv_qp_attr *from, int mask)
{
#define TAKE(bit, field)                                                                                               \
	if (mask & (bit))                                                                                              \
	to->field = from->field
	TAKE(IBV_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify);
	TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	TAKE(IBV_QP_PKEY_INDEX, pkey_index);
	TAKE(IBV_QP_PORT, port_num);
	TAKE(IBV_QP_QKEY, qkey);
	TAKE(IBV_QP_AV, ah_attr);
	TAKE(IBV_QP_PATH_MTU, path_mtu);
	TAKE(IBV_QP_TIMEOUT, timeout);
	TAKE(IBV_QP_RETRY_CNT, retry_cnt);
	TAKE(IBV_QP_RNR_RETRY, rnr_retry);
	TAKE(IBV_QP_RQ_PSN, rq_psn);
	TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	TAKE(IBV_QP_ALT_PATH, alt_ah_attr);
	TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	TAKE(IBV_QP_SQ_PSN, sq_psn);
	TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	TAKE(IBV_QP_PATH_MIG_STATE, path_mig_state);
	TAKE(IBV_QP_DEST_QPN, dest_qp_num);
	TAKE(IBV_QP_RATE_LIMIT, rate_limit);
#undef TAKE
}

/* The valid ranges of the values. */
static int check_values(const struct ibv_qp_attr *a, int mask)
{
	if (mask & IBV_QP_PORT && a->port_num != 1)
		return EINVAL;
	if (mask & IBV_QP_PATH_MTU && (a->path_mtu < IBV_MTU_256 || a->path_mtu > IBV_MTU_4096))
		return EINVAL;
	if (mask & IBV_QP_AV && !verbs_ah_valid(&a->ah_attr))
		return EINVAL;
	if ((mask & IBV_QP_RNR_RETRY && a->rnr_retry > 7) || (mask & IBV_QP_RETRY_CNT && a->retry_cnt > 7))
		return EINVAL;
	if ((mask & IBV_QP_TIMEOUT && a->timeout > 31) || (mask & IBV_QP_MIN_RNR_TIMER && a->min_rnr_timer > 31))
		return EINVAL;
	if ((mask & IBV_QP_MAX_QP_RD_ATOMIC && a->max_rd_atomic > SOFT_RD_ATOMIC) ||
	    (mask & IBV_QP_MAX_DEST_RD_ATOMIC && a->max_dest_rd_atomic > SOFT_RD_ATOMIC))
		return EINVAL;
	return 0;
}

/* Starts the work of a new state; wire locked. */
static void enter(struct soft_qp *q, uint32_t to, int mask)
{
	if (mask & IBV_QP_SQ_PSN)
		q->sq_psn = q->attr.sq_psn & 0xffffff;
	if (mask & IBV_QP_RQ_PSN)
		q->rq_psn = q->attr.rq_psn & 0xffffff;
	switch (to) {
	case IBV_QPS_RESET:
		q->attr = (struct ibv_qp_attr){.cap = q->init.cap};
		reset(q);
		break;
	case IBV_QPS_ERR:
		verbs_fail(q, IBV_QPS_ERR);
		break;
	case IBV_QPS_SQD: /* requests posted before are done or wait: none is on its way */
		q->state = to;
		q->wake = SOFT_NEVER;
		if (q->attr.en_sqd_async_notify)
			verbs_object_event(q->qp.context, IBV_EVENT_SQ_DRAINED, &q->qp, q->qp.handle);
		break;
	default:
		q->state = to;
		verbs_run(q);
		verbs_run_peer(q); /* which may have waited for this */
	}
}

/* All or nothing: a refused call changes no attribute. */
VERBS_PUBLIC int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct soft_qp *q = (struct soft_qp *)qp;
	int err = verbs_begin(qp->context, "ibv_modify_qp");
	if (err)
		return err;
	verbs_wire_lock();
	uint32_t to = mask & IBV_QP_STATE ? attr->qp_state : q->state;
	if (mask & IBV_QP_CUR_STATE && attr->cur_qp_state != q->state)
		err = EINVAL;
	else if (!verbs_qp_transition(qp->qp_type, q->state, to, mask))
		err = EINVAL;
	else
		err = check_values(attr, mask);
	if (!err) {
		assign(&q->attr, attr, mask);
		enter(q, to, mask);
		if (mask & IBV_QP_STATE)
			qp->state = to;
	}
	verbs_wire_unlock();
	verbs_leave(qp->context);
	return err;
}

VERBS_PUBLIC int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	struct soft_qp *q = (struct soft_qp *)qp;
	(void)mask; /* a hint: the call may return more than requested */
	int err = verbs_begin(qp->context, "ibv_query_qp");
	if (err)
		return err;
	verbs_wire_lock();
	*attr = q->attr;
	attr->sq_psn = q->sq_psn;
	attr->rq_psn = q->rq_psn;
	attr->qp_state = attr->cur_qp_state = qp->state = q->state;
	verbs_wire_unlock();
	*init = q->init;
	verbs_leave(qp->context);
	return 0;
}
