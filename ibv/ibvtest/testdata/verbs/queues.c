// SPDX-License-Identifier: Apache-2.0
// queues.c: queues at their limits: states, flushes, resets, overruns, refusals.
#include "ends.h"

/* The requests that may be posted in each state, and how they end. */
void case_post_states(void)
{
	struct end a, b;
	struct ibv_wc wc;
	end_make(&a, "mlx5_0", &usual);
	end_make(&b, "mlx5_0", &usual);
	end_init(&a, &usual);
	WANT(post_recv(&a, 1, 0, 8), 0);
	end_rtr(&a, &b, &usual);
	WANT(post_recv(&a, 2, 0, 8), 0);
	end_rts(&a, &usual);
	WANT(post(&a, IBV_WR_SEND, 3, 0, 0, 8, NULL, 0), 0); /* b is not there: it waits */
	WANT(post(&a, IBV_WR_RDMA_READ, 4, IBV_SEND_SIGNALED, 0, 8, &b, 0), 0);
	WANT_NONE(a.send_cq);
	WANT_NONE(a.recv_cq);
	/* ERR flushes exactly the outstanding requests, each queue in its order. */
	WANT(move(&a, IBV_QPS_ERR), 0);
	WANT_WC(a.send_cq, 3, IBV_WC_WR_FLUSH_ERR);
	WANT_WC(a.send_cq, 4, IBV_WC_WR_FLUSH_ERR);
	WANT_NONE(a.send_cq);
	WANT_WC(a.recv_cq, 1, IBV_WC_WR_FLUSH_ERR);
	WANT_WC(a.recv_cq, 2, IBV_WC_WR_FLUSH_ERR);
	WANT_NONE(a.recv_cq);
	WANT(post(&a, IBV_WR_SEND, 5, 0, 0, 8, NULL, 0), 0);
	WANT_WC(a.send_cq, 5, IBV_WC_WR_FLUSH_ERR);
	WANT(post_recv(&a, 6, 0, 8), 0);
	WANT_WC(a.recv_cq, 6, IBV_WC_WR_FLUSH_ERR);
	/* RESET drops everything, completions that were not polled included, and begins anew. */
	WANT(post_recv(&a, 7, 0, 8), 0);
	WANT(move(&a, IBV_QPS_RESET), 0);
	WANT_NONE(a.recv_cq);
	end_connect(&a, &b, &usual);
	for (int i = 0; i < DEPTH; i++)
		WANT(post_recv(&a, i, 0, 8), 0);
	ends_down(&a, &b);
}

/* Values that ibv_modify_qp(3) does not take change nothing. */
void case_qp_values(void)
{
	static const int to_rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	static const int to_rts = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	struct end a;
	end_make(&a, "mlx5_0", &usual);
	end_init(&a, &usual);
	struct ibv_qp_attr good = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .ah_attr = {.is_global = 1, .port_num = 1}}, bad;
#define REFUSED(mask, field, value)                                                                                    \
	do {                                                                                                           \
		bad = good;                                                                                            \
		bad.field = value;                                                                                     \
		WANT(ibv_modify_qp(a.qp, &bad, mask), EINVAL);                                                         \
	} while (0)
	REFUSED(to_rtr, path_mtu, 0);
	REFUSED(to_rtr, path_mtu, IBV_MTU_4096 + 1);
	REFUSED(to_rtr, ah_attr.is_global, 0); /* RoCE wants a GRH */
	REFUSED(to_rtr, ah_attr.port_num, 2);
	REFUSED(to_rtr, ah_attr.grh.sgid_index, 1);
	REFUSED(to_rtr, max_dest_rd_atomic, 17);
	REFUSED(to_rtr, min_rnr_timer, 32);
	WANT(state_of(&a), IBV_QPS_INIT);
	WANT(ibv_modify_qp(a.qp, &good, to_rtr), 0);
	good.qp_state = IBV_QPS_RTS;
	REFUSED(to_rts, timeout, 32);
	REFUSED(to_rts, retry_cnt, 8);
	REFUSED(to_rts, rnr_retry, 8);
	REFUSED(to_rts, max_rd_atomic, 17);
	WANT(ibv_modify_qp(a.qp, &good, to_rts), 0);
	end_close(&a);
}

/* SQD holds back later requests. */
void case_sqd(void)
{
	struct end a, b;
	struct ibv_wc wc;
	ends_up(&a, &b, &usual);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
	WANT(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	WANT(next_event(a.context), IBV_EVENT_SQ_DRAINED);
	WANT(post(&a, IBV_WR_RDMA_WRITE, 1, IBV_SEND_SIGNALED, 0, 8, &b, 0), 0);
	WANT_NONE(a.send_cq);
	WANT(move(&a, IBV_QPS_RTS), 0);
	WANT_WC(a.send_cq, 1, IBV_WC_SUCCESS);
	ends_down(&a, &b);
}

/* A queue that is not polled in time cannot be used any more, nor its queue pairs. */
void case_cq_overrun(void)
{
	struct end a, b;
	struct ibv_wc wc;
	struct options o = usual;
	o.cqe = 3;
	ends_up(&a, &b, &o);
	WANT(a.send_cq->cqe, 3);
	for (int i = 0; i < 3; i++)
		WANT(post(&a, IBV_WR_RDMA_WRITE, i, IBV_SEND_SIGNALED, 0, 8, &b, 0), 0);
	WANT_WC(a.send_cq, 0, IBV_WC_SUCCESS);
	WANT(post(&a, IBV_WR_RDMA_WRITE, 3, IBV_SEND_SIGNALED, 0, 8, &b, 0), 0);
	WANT(state_of(&a), IBV_QPS_RTS);
	for (int i = 4; i < 6; i++) /* the ring has four entries */
		WANT(post(&a, IBV_WR_RDMA_WRITE, i, IBV_SEND_SIGNALED, 0, 8, &b, 0), 0);
	WANT(next_event(a.context), IBV_EVENT_CQ_ERR);
	WANT_SOON(state_of(&a), IBV_QPS_ERR);
	WANT(state_of(&b), IBV_QPS_RTS);
	ends_down(&a, &b);
}
