/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_qp.c: queue pairs: RAW_PACKET, UD, UC and RC with their states. They carry
 * nothing: what is posted is refused. */
#include <errno.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "verbs_soft.h"

#define MAX_WR (1 << 14)
#define MAX_SGE 16
#define MAX_INLINE 512
#define MAX_COMP_CNTRS 6 /* one per kind of operation */

struct soft_qp {
	struct ibv_qp qp;
	struct soft_object object;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	uint32_t comp_ops; /* that a completion counter counts */
	struct soft_object *comp_cntrs[MAX_COMP_CNTRS];
};

bool verbs_net_raw(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];
	if (syscall(SYS_capget, &head, data))
		return false;
	return data[0].effective & 1U << CAP_NET_RAW;
}

static void release_qp(struct soft_object *o)
{
	struct soft_qp *q = VERBS_OUTER(o, struct soft_qp, object);
	for (int i = 0; i < MAX_COMP_CNTRS && q->comp_cntrs[i]; i++)
		q->comp_cntrs[i]->users--;
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
	if (a->srq || cap->max_send_wr > MAX_WR || cap->max_recv_wr > MAX_WR || cap->max_send_sge > MAX_SGE ||
	    cap->max_recv_sge > MAX_SGE || cap->max_inline_data > MAX_INLINE)
		return EINVAL;
	return 0;
}

VERBS_PUBLIC struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct soft_qp *q = NULL;
	int err = verbs_begin(pd->context, "ibv_create_qp");
	if (err)
		return verbs_made(NULL, err);
	err = check(pd, init);
	if (!err && !(q = calloc(1, sizeof(*q))))
		err = ENOMEM;
	if (q) {
		q->qp.context = pd->context;
		q->qp.qp_context = init->qp_context;
		q->qp.pd = pd;
		q->qp.send_cq = init->send_cq;
		q->qp.recv_cq = init->recv_cq;
		q->qp.handle = verbs_handle(pd->context);
		q->qp.qp_num = q->qp.handle & 0xffffff;
		q->qp.qp_type = init->qp_type;
		q->qp.state = IBV_QPS_RESET;
		pthread_mutex_init(&q->qp.mutex, NULL);
		pthread_cond_init(&q->qp.cond, NULL);
		q->init = *init;
		q->attr.cap = init->cap;
		verbs_pd_use(pd, 1);
		verbs_cq_use(init->send_cq, 1);
		verbs_cq_use(init->recv_cq, 1);
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

int verbs_qp_add_comp_ops(struct ibv_qp *qp, uint32_t ops, struct soft_object *counter)
{
	struct soft_qp *q = (struct soft_qp *)qp;
	int i = 0;
	if (q->comp_ops & ops)
		return EBUSY;
	while (q->comp_cntrs[i]) /* every counter has an operation of its own: there is room */
		i++;
	q->comp_ops |= ops;
	q->comp_cntrs[i] = counter;
	counter->users++;
	return 0;
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

/* All or nothing: what is refused changes no attribute. */
VERBS_PUBLIC int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct soft_qp *q = (struct soft_qp *)qp;
	int err = verbs_begin(qp->context, "ibv_modify_qp");
	if (err)
		return err;
	uint32_t to = mask & IBV_QP_STATE ? attr->qp_state : qp->state;
	if (mask & IBV_QP_CUR_STATE && attr->cur_qp_state != qp->state)
		err = EINVAL;
	else if (!verbs_qp_transition(qp->qp_type, qp->state, to, mask))
		err = EINVAL;
	else if (mask & IBV_QP_PORT && attr->port_num != 1)
		err = EINVAL;
	if (!err && to == IBV_QPS_RESET)
		q->attr = (struct ibv_qp_attr){.cap = q->init.cap};
	if (!err) {
		assign(&q->attr, attr, mask);
		qp->state = to;
	}
	verbs_leave(qp->context);
	return err;
}

VERBS_PUBLIC int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	struct soft_qp *q = (struct soft_qp *)qp;
	(void)mask; /* a hint: more may be answered than was asked for */
	int err = verbs_begin(qp->context, "ibv_query_qp");
	if (err)
		return err;
	*attr = q->attr;
	attr->qp_state = attr->cur_qp_state = qp->state;
	*init = q->init;
	verbs_leave(qp->context);
	return 0;
}

int verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int err = verbs_gate(qp->context, "ibv_post_send");
	*bad = wr;
	return err ? err : EOPNOTSUPP;
}

int verbs_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int err = verbs_gate(qp->context, "ibv_post_recv");
	*bad = wr;
	return err ? err : EOPNOTSUPP;
}
