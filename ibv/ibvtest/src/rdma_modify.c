/* SPDX-License-Identifier: Apache-2.0
 *
 * rdma_modify.c: changes of a queue pair's attributes and state. */
#include <errno.h>

#include "rdma_qp.h"

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

bool rdma_ah_valid(const struct ibv_ah_attr *a)
{
	return a->is_global && !a->grh.sgid_index && a->port_num == 1;
}

/* The valid ranges of the values. */
static int check_values(const struct ibv_qp_attr *a, int mask)
{
	if (mask & IBV_QP_PORT && a->port_num != 1)
		return EINVAL;
	if (mask & IBV_QP_PATH_MTU && (a->path_mtu < IBV_MTU_256 || a->path_mtu > IBV_MTU_4096))
		return EINVAL;
	if (mask & IBV_QP_AV && !rdma_ah_valid(&a->ah_attr))
		return EINVAL;
	if ((mask & IBV_QP_RNR_RETRY && a->rnr_retry > 7) || (mask & IBV_QP_RETRY_CNT && a->retry_cnt > 7))
		return EINVAL;
	if ((mask & IBV_QP_TIMEOUT && a->timeout > 31) || (mask & IBV_QP_MIN_RNR_TIMER && a->min_rnr_timer > 31))
		return EINVAL;
	if ((mask & IBV_QP_MAX_QP_RD_ATOMIC && a->max_rd_atomic > RDMA_RD_ATOMIC) ||
	    (mask & IBV_QP_MAX_DEST_RD_ATOMIC && a->max_dest_rd_atomic > RDMA_RD_ATOMIC))
		return EINVAL;
	return 0;
}

/* To RESET, without a look at the state before. */
static void reset(struct rdma_qp *q)
{
	q->state = IBV_QPS_RESET;
	q->wake = RDMA_NEVER;
	rdma_queue_clear(&q->sq);
	rdma_queue_clear(&q->rq);
}

/* Starts the work of a new state. */
static void enter(struct rdma_qp *q, uint32_t to, int mask)
{
	if (mask & IBV_QP_SQ_PSN)
		q->sq_psn = q->attr.sq_psn & 0xffffff;
	if (mask & IBV_QP_RQ_PSN)
		q->rq_psn = q->attr.rq_psn & 0xffffff;
	switch (to) {
	case IBV_QPS_RESET:
		q->attr = (struct ibv_qp_attr){.cap = q->attr.cap};
		reset(q);
		break;
	case IBV_QPS_ERR:
		rdma_fail(q, IBV_QPS_ERR);
		break;
	case IBV_QPS_SQD: /* requests posted before are done or wait: none is on its way */
		q->state = to;
		q->wake = RDMA_NEVER;
		if (q->attr.en_sqd_async_notify)
			q->ops->event(q, IBV_EVENT_SQ_DRAINED);
		break;
	default:
		q->state = to;
		q->run(q);
		rdma_run_peer(q); /* which may have waited for this */
	}
}

int rdma_modify(struct rdma_qp *q, const struct ibv_qp_attr *attr, int mask)
{
	uint32_t to = mask & IBV_QP_STATE ? attr->qp_state : q->state;
	if ((mask & IBV_QP_CUR_STATE && attr->cur_qp_state != q->state) || !rdma_transition(q->type, q->state, to, mask))
		return EINVAL;
	int err = check_values(attr, mask);
	if (err)
		return err;
	assign(&q->attr, attr, mask);
	enter(q, to, mask);
	return 0;
}
