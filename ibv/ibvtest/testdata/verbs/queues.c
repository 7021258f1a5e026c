// SPDX-License-Identifier: Apache-2.0
// queues.c: queues at their limits: states, flushes, resets, overruns, what waits.
#include "ends.h"

#include <time.h>
#include <unistd.h>

/* What may be posted in which state, and what becomes of it. */
void case_post_states(void)
{
	struct end a, b;
	struct ibv_wc wc;
	end_make(&a, "swnic0", &usual);
	end_make(&b, "swnic0", &usual);
	WANT(post_recv(&a, 1, 0, 8), EINVAL);
	WANT(post(&a, IBV_WR_SEND, 1, 0, 0, 8, NULL, 0), EINVAL);
	end_init(&a, &usual);
	WANT(post_recv(&a, 1, 0, 8), 0);
	WANT(post(&a, IBV_WR_SEND, 1, 0, 0, 8, NULL, 0), EINVAL);
	end_rtr(&a, &b, &usual);
	WANT(post_recv(&a, 2, 0, 8), 0);
	WANT(post(&a, IBV_WR_SEND, 1, 0, 0, 8, NULL, 0), EINVAL);
	end_rts(&a, &usual);
	WANT(post(&a, IBV_WR_SEND, 3, 0, 0, 8, NULL, 0), 0); /* b is not there: it waits */
	WANT(post(&a, IBV_WR_RDMA_READ, 4, IBV_SEND_SIGNALED, 0, 8, &b, 0), 0);
	WANT_NONE(a.send_cq);
	WANT_NONE(a.recv_cq);
	/* ERR flushes exactly what is outstanding, each queue in its order. */
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
	/* RESET forgets all, what was not polled included, and begins anew. */
	WANT(post_recv(&a, 7, 0, 8), 0);
	WANT(move(&a, IBV_QPS_RESET), 0);
	WANT_NONE(a.recv_cq);
	end_connect(&a, &b, &usual);
	for (int i = 0; i < DEPTH; i++)
		WANT(post_recv(&a, i, 0, 8), 0);
	ends_down(&a, &b);
}

/* Entries of a queue pair that ends go from a queue that others share. */
void case_cq_shared(void)
{
	struct end a, b;
	struct ibv_wc wc;
	end_make(&a, "swnic0", &usual);
	end_make(&b, "swnic0", &usual);
	struct ibv_qp_init_attr init = qp_attr(a.send_cq, IBV_QPT_RC);
	init.cap.max_send_wr = init.cap.max_recv_wr = 4;
	struct end other = a;
	NEED(other.qp = ibv_create_qp(a.pd, &init));
	end_init(&a, &usual);
	end_init(&other, &usual);
	WANT(move(&a, IBV_QPS_ERR), 0);
	WANT(move(&other, IBV_QPS_ERR), 0);
	for (int i = 0; i < 3; i++) {
		WANT(post(&a, IBV_WR_SEND, i, 0, 0, 8, NULL, 0), 0);
		WANT(post_recv(&other, 100 + i, 0, 8), 0);
	}
	WANT_WC(a.send_cq, 0, IBV_WC_WR_FLUSH_ERR);
	WANT(ibv_destroy_qp(other.qp), 0);
	WANT_WC(a.send_cq, 1, IBV_WC_WR_FLUSH_ERR);
	WANT_WC(a.send_cq, 2, IBV_WC_WR_FLUSH_ERR);
	WANT_NONE(a.send_cq);
	ends_down(&a, &b);
}

/* SQD holds back what is posted. */
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
	WANT(post(&a, IBV_WR_RDMA_WRITE, 4, IBV_SEND_SIGNALED, 0, 8, &b, 0), 0);
	struct ibv_async_event e;
	WANT(ibv_get_async_event(a.context, &e), 0);
	WANT(e.event_type, IBV_EVENT_CQ_ERR);
	WANT(e.element.cq == a.send_cq, true);
	ibv_ack_async_event(&e);
	WANT(ibv_poll_cq(a.send_cq, 1, &wc), -1);
	WANT(ibv_req_notify_cq(a.send_cq, 0), EINVAL);
	WANT(state_of(&a), IBV_QPS_ERR);
	WANT(state_of(&b), IBV_QPS_RTS);
	ends_down(&a, &b);
}

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
	tell("port_down swnic0\n");
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

/* A receiver that is not ready, and a peer that does not answer, are waited for: for ever, or
 * as long as the attributes say. */
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
		AWAIT_WC(a.send_cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
		WANT(state_of(&a), IBV_QPS_ERR);
		WANT(state_of(&b), IBV_QPS_RTS); /* which does not know */
		ends_down(&a, &b);
	}

	o = usual;
	o.timeout = 8; /* 1 ms, three times */
	o.retry_cnt = 2;
	end_make(&a, "swnic0", &o);
	end_make(&b, "swnic1", &o);
	end_init(&a, &o);
	end_rtr(&a, &b, &o);
	end_rts(&a, &o);
	WANT(post(&a, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, &b, 0), 0);
	AWAIT_WC(a.send_cq, 1, IBV_WC_RETRY_EXC_ERR);
	ends_down(&a, &b);

	/* A peer that comes, RTR is enough, is given what has waited. */
	end_make(&a, "swnic0", &usual);
	end_make(&b, "swnic1", &usual);
	end_init(&a, &usual);
	end_rtr(&a, &b, &usual);
	end_rts(&a, &usual);
	WANT(post(&a, IBV_WR_RDMA_WRITE, 1, IBV_SEND_SIGNALED, 0, 8, &b, 0), 0);
	end_init(&b, &usual);
	WANT_NONE(a.send_cq);
	end_rtr(&b, &a, &usual);
	WANT_WC(a.send_cq, 1, IBV_WC_SUCCESS);
	ends_down(&a, &b);

	/* So is one that was connected to somebody else, or from another packet on: no answer. */
	end_make(&a, "swnic0", &usual);
	end_make(&b, "swnic0", &usual);
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

/* DELAY=swnic0/WQE=3600s,swnic1/WQE=20ms: work stays outstanding, or completes no earlier. */
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
	AWAIT_WC(b.send_cq, 7, IBV_WC_SUCCESS);
	WANT(now() - from >= 20000000, true);
	ends_down(&a, &b);
}

/* What a device that goes has begun is not completed, and its peers get no answer. */
void case_gone(void)
{
	struct end a, b;
	struct ibv_wc wc;
	struct options o = usual;
	o.other_device = true;
	o.timeout = 1;
	ends_up(&a, &b, &o);
	WANT(post_recv(&b, 1, 0, 8), 0);
	tell("fatal swnic1\n");
	WANT(next_event(b.context), IBV_EVENT_DEVICE_FATAL);
	WANT(post(&a, IBV_WR_SEND, 2, 0, 0, 8, NULL, 0), 0);
	AWAIT_WC(a.send_cq, 2, IBV_WC_RETRY_EXC_ERR);
	WANT(ibv_poll_cq(b.recv_cq, 1, &wc), -1);
	WANT(post_recv(&b, 3, 0, 8), EIO);
	WANT(post(&b, IBV_WR_SEND, 3, 0, 0, 8, NULL, 0), EIO);
	WANT(ibv_dereg_mr(b.mr), EIO);
	WANT(ibv_close_device(b.context), 0);
	end_close(&a);
}

/* What ibv_post_send(3) refuses. */
void case_post_refused(void)
{
	struct end a, b;
	struct ibv_send_wr *bad;
	struct ibv_recv_wr *bad_recv;
	ends_up(&a, &b, &usual);
	struct ibv_sge sge[4] = {sge_of(&a, 0, 1), sge_of(&a, 1, 1), sge_of(&a, 2, 1), sge_of(&a, 3, 1)};
	struct ibv_send_wr wr = {.sg_list = sge, .num_sge = 4, .opcode = IBV_WR_SEND};
	struct ibv_recv_wr recv = {.sg_list = sge, .num_sge = 4};
	WANT(ibv_post_send(a.qp, &wr, &bad), EINVAL); /* of max_send_sge 3 */
	WANT(ibv_post_recv(a.qp, &recv, &bad_recv), EINVAL);
	wr.num_sge = recv.num_sge = -1;
	WANT(ibv_post_send(a.qp, &wr, &bad), EINVAL);
	WANT(ibv_post_recv(a.qp, &recv, &bad_recv), EINVAL);
	wr.num_sge = 1;
	wr.send_flags = IBV_SEND_INLINE;
	wr.opcode = IBV_WR_RDMA_READ;
	WANT(ibv_post_send(a.qp, &wr, &bad), EINVAL);
	wr.opcode = IBV_WR_SEND;
	wr.send_flags = 1 << 20;
	WANT(ibv_post_send(a.qp, &wr, &bad), EINVAL);
	wr.send_flags = 0;
	wr.opcode = IBV_WR_BIND_MW;
	WANT(ibv_post_send(a.qp, &wr, &bad), EINVAL);
	sge[0].length = (1U << 30) + 1; /* max_msg_sz */
	wr.opcode = IBV_WR_SEND;
	WANT(ibv_post_send(a.qp, &wr, &bad), EINVAL);
	ends_down(&a, &b);

	struct rig r;
	rig_up(&r);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	WANT(ibv_modify_qp(r.qp, &attr, IBV_QP_STATE | IBV_QP_PORT), 0);
	WANT(ibv_post_recv(r.qp, &recv, &bad_recv), EOPNOTSUPP); /* RAW_PACKET carries nothing */
	rig_down(&r);

	/* A queue of more than wqe_counter can number. */
	struct ibv_context *c = open_device("swnic0");
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_cq *cq = ibv_create_cq(c, 1, NULL, NULL, 0);
	struct ibv_qp_init_attr init = qp_attr(cq, IBV_QPT_RC);
	init.cap.max_send_wr = 1 << 14;
	init.cap.max_send_sge = 16;
	WANT_NULL(ibv_create_qp(pd, &init), ENOMEM);
	init.cap.max_send_sge = 1;
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	NEED(qp);
	WANT(ibv_destroy_qp(qp), 0);
	WANT(ibv_destroy_cq(cq), 0);
	WANT(ibv_dealloc_pd(pd), 0);
	WANT(ibv_close_device(c), 0);
}
