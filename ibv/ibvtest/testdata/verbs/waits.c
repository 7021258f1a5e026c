// SPDX-License-Identifier: Apache-2.0
// waits.c: waiting for events, for peers, for the wire.
#include "ends.h"

#include <fcntl.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

/* An event of an object that has gone is not read, and one that was is waited for. */
static bool acknowledging;

static void *acknowledge(void *arg)
{
	usleep(20000);
	__atomic_store_n(&acknowledging, true, __ATOMIC_SEQ_CST);
	ibv_ack_async_event(arg);
	return NULL;
}

void case_event_of_object(void)
{
	struct end a, b;
	struct ibv_async_event e;
	pthread_t thread;
	struct ibv_qp_attr sqd = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
	ends_up(&a, &b, &usual);
	WANT(ibv_modify_qp(a.qp, &sqd, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	WANT(ibv_destroy_qp(a.qp), 0);
	tell("port_down mlx5_0\n");
	WANT(next_event(a.context), IBV_EVENT_PORT_ERR);
	struct ibv_qp_init_attr init = qp_attr(a.send_cq, IBV_QPT_RC);
	NEED(a.qp = ibv_create_qp(a.pd, &init));
	WANT(next_event(b.context), IBV_EVENT_PORT_ERR);

	WANT(ibv_modify_qp(b.qp, &sqd, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	WANT(ibv_get_async_event(b.context, &e), 0);
	WANT(e.event_type, IBV_EVENT_SQ_DRAINED);
	WANT(e.element.qp == b.qp, true);
	NEED(!pthread_create(&thread, NULL, acknowledge, &e));
	WANT(ibv_destroy_qp(b.qp), 0);
	WANT(__atomic_load_n(&acknowledging, __ATOMIC_SEQ_CST), true);
	pthread_join(thread, NULL);
	init.send_cq = init.recv_cq = b.send_cq;
	NEED(b.qp = ibv_create_qp(b.pd, &init));
	ends_down(&a, &b);
}

/* A sender waits for a receiver that is not ready, and for a peer that does not reply: for ever,
 * or as long as the attributes say. */
void case_stalls(void)
{
	struct end a, b;
	struct ibv_wc wc;
	struct options o = usual;
	ends_up(&a, &b, &o); /* rnr_retry 7 */
	WANT(post(&a, IBV_WR_SEND, 1, IBV_SEND_SIGNALED, 0, 8, NULL, 0), 0);
	WANT(post(&a, IBV_WR_RDMA_WRITE, 2, IBV_SEND_SIGNALED, 0, 8, &b, 0), 0);
	WANT_NONE(a.send_cq); /* the write waits its turn */
	WANT(post_recv(&b, 3, 0, 8), 0);
	WANT_WC(a.send_cq, 1, IBV_WC_SUCCESS);
	WANT_WC(a.send_cq, 2, IBV_WC_SUCCESS);
	WANT_WC(b.recv_cq, 3, IBV_WC_SUCCESS);
	ends_down(&a, &b);

	for (o.rnr_retry = 0; o.rnr_retry < 7; o.rnr_retry += 3) { /* of 10 us each */
		ends_up(&a, &b, &o);
		WANT(post(&a, IBV_WR_SEND, 1, 0, 0, 8, NULL, 0), 0);
		WANT_WC(a.send_cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
		WANT(state_of(&a), IBV_QPS_ERR);
		WANT(state_of(&b), IBV_QPS_RTS); /* which does not know */
		ends_down(&a, &b);
	}

	o = usual;
	o.timeout = 8; /* 1 ms, three times */
	o.retry_cnt = 2;
	end_make(&a, "mlx5_0", &o);
	end_make(&b, "mlx5_1", &o);
	end_init(&a, &o);
	end_rtr(&a, &b, &o);
	end_rts(&a, &o);
	WANT(post(&a, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, &b, 0), 0);
	WANT_WC(a.send_cq, 1, IBV_WC_RETRY_EXC_ERR);
	ends_down(&a, &b);

	/* A peer that reaches RTR receives the waiting requests. */
	end_make(&a, "mlx5_0", &usual);
	end_make(&b, "mlx5_1", &usual);
	end_init(&a, &usual);
	end_rtr(&a, &b, &usual);
	end_rts(&a, &usual);
	WANT(post(&a, IBV_WR_RDMA_WRITE, 1, IBV_SEND_SIGNALED, 0, 8, &b, 0), 0);
	end_init(&b, &usual);
	WANT_NONE(a.send_cq);
	end_rtr(&b, &a, &usual);
	WANT_WC(a.send_cq, 1, IBV_WC_SUCCESS);
	ends_down(&a, &b);

	/* A peer that is connected to another queue pair, or from another packet on, does not reply. */
	end_make(&a, "mlx5_0", &usual);
	end_make(&b, "mlx5_0", &usual);
	end_init(&a, &usual);
	end_init(&b, &usual);
	end_rtr(&a, &b, &usual);
	end_rtr(&b, &b, &usual);
	end_rts(&a, &usual);
	end_rts(&b, &usual);
	WANT(post(&a, IBV_WR_RDMA_WRITE, 1, IBV_SEND_SIGNALED, 0, 8, &b, 0), 0);
	WANT_NONE(a.send_cq);
	WANT(move(&b, IBV_QPS_RESET), 0);
	end_init(&b, &usual);
	end_rtr(&b, &a, &usual);
	WANT_WC(a.send_cq, 1, IBV_WC_SUCCESS);
	WANT(move(&b, IBV_QPS_RESET), 0);
	end_init(&b, &usual);
	end_rtr(&b, &a, &usual); /* expects the first packet again, which was sent */
	WANT(post(&a, IBV_WR_RDMA_WRITE, 2, IBV_SEND_SIGNALED, 0, 8, &b, 0), 0);
	WANT_NONE(a.send_cq);
	ends_down(&a, &b);
}

static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* DELAY=mlx5_0/WQE=3600s,mlx5_1/WQE=20ms: work stays outstanding, or completes no earlier. */
void case_wqe_delay(void)
{
	struct end a, b;
	struct ibv_wc wc;
	struct options o = usual;
	o.other_device = true;
	ends_up(&a, &b, &o);
	for (int i = 0; i < 5; i++)
		WANT(post(&a, IBV_WR_RDMA_WRITE, i, 0, 0, 8, &b, 0), 0);
	WANT_NONE(a.send_cq);
	WANT(move(&a, IBV_QPS_ERR), 0);
	for (int i = 0; i < 5; i++)
		WANT_WC(a.send_cq, i, IBV_WC_WR_FLUSH_ERR);
	WANT_NONE(a.send_cq);
	WANT(move(&a, IBV_QPS_RESET), 0);
	end_init(&a, &o);
	end_rtr(&a, &b, &o);

	long long from = now();
	WANT(post(&b, IBV_WR_RDMA_WRITE, 6, 0, 0, 8, &a, 0), 0);
	WANT(post(&b, IBV_WR_RDMA_WRITE, 7, IBV_SEND_SIGNALED, 0, 8, &a, 0), 0);
	WANT_WC(b.send_cq, 7, IBV_WC_SUCCESS);
	WANT(now() - from >= 20000000, true);
	ends_down(&a, &b);
}

/* Requests under way on a device that goes are not completed, and its peers get no reply. */
void case_gone(void)
{
	struct end a, b;
	struct ibv_wc wc;
	struct options o = usual;
	o.other_device = true;
	o.timeout = 1;
	ends_up(&a, &b, &o);
	WANT(post_recv(&b, 1, 0, 8), 0);
	tell("fatal mlx5_1\n");
	WANT(next_event(b.context), IBV_EVENT_DEVICE_FATAL);
	WANT(post(&a, IBV_WR_SEND, 2, 0, 0, 8, NULL, 0), 0);
	WANT_WC(a.send_cq, 2, IBV_WC_RETRY_EXC_ERR);
	WANT(ibv_poll_cq(b.recv_cq, 1, &wc), 0); /* providers look at memory */
	WANT(ibv_dereg_mr(b.mr), 0);
	WANT(ibv_close_device(b.context), 0);
	end_close(&a);
}
