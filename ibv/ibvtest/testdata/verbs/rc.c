// SPDX-License-Identifier: Apache-2.0
// rc.c: successful work, by ibv_post_send(3), ibv_post_recv(3) and ibv_poll_cq(3).
#include "ends.h"

#include <unistd.h>

static void send_and_receive(const struct options *o)
{
	struct end a, b;
	struct ibv_wc wc;
	ends_up(&a, &b, o);
	for (unsigned i = 0; i < 40; i++) { /* goes round the queues */
		memset(a.buffer, i + 1, 600);
		WANT(post_recv(&b, 100 + i, 1000, 700), 0);
		WANT_NONE(b.recv_cq);
		WANT(post(&a, IBV_WR_SEND, i, IBV_SEND_SIGNALED, 0, 600, NULL, 0), 0);
		WANT_WC(a.send_cq, i, IBV_WC_SUCCESS);
		WANT(wc.opcode, IBV_WC_SEND);
		WANT(wc.qp_num, a.qp->qp_num);
		WANT_WC(b.recv_cq, 100 + i, IBV_WC_SUCCESS);
		WANT(wc.opcode, IBV_WC_RECV);
		WANT(wc.byte_len, 600);
		WANT(wc.qp_num, b.qp->qp_num);
		WANT(wc.wc_flags, 0);
		WANT(b.buffer[999], 0);
		WANT(b.buffer[1000], i + 1);
		WANT(b.buffer[1599], i + 1);
		WANT(b.buffer[1600], 0);
	}
	WANT_NONE(a.send_cq);
	WANT_NONE(b.recv_cq);
	ends_down(&a, &b);
}

void case_rc_send(void)
{
	struct options o = usual;
	send_and_receive(&o);
	o.other_device = true;
	send_and_receive(&o);
	o.type = IBV_QPT_UC;
	send_and_receive(&o);
}

/* A queue pair may be its own peer. */
void case_rc_self(void)
{
	struct end a;
	struct ibv_wc wc;
	end_make(&a, "mlx5_0", &usual);
	end_connect(&a, &a, &usual);
	strcpy((char *)a.buffer, "to myself");
	WANT(post_recv(&a, 2, 100, 10), 0);
	WANT(post(&a, IBV_WR_SEND, 1, IBV_SEND_SIGNALED, 0, 10, NULL, 0), 0);
	WANT_WC(a.send_cq, 1, IBV_WC_SUCCESS);
	WANT_WC(a.recv_cq, 2, IBV_WC_SUCCESS);
	WANT(strcmp((char *)a.buffer + 100, "to myself"), 0);
	end_close(&a);
}

void case_rc_rdma(void)
{
	struct end a, b;
	struct ibv_wc wc;
	ends_up(&a, &b, &usual);
	memset(a.buffer, 1, 3000); /* three packets */
	WANT(post(&a, IBV_WR_RDMA_WRITE, 1, IBV_SEND_SIGNALED, 0, 3000, &b, 1000), 0);
	WANT_WC(a.send_cq, 1, IBV_WC_SUCCESS);
	WANT(wc.opcode, IBV_WC_RDMA_WRITE);
	WANT(b.buffer[999], 0);
	WANT(b.buffer[1000], 1);
	WANT(b.buffer[3999], 1);
	WANT(b.buffer[4000], 0);
	WANT_NONE(b.recv_cq); /* the other side does not hear of it */

	WANT(post_recv(&b, 7, 4090, 1), 0); /* which is not written to */
	memset(a.buffer, 2, 10);
	WANT(post(&a, IBV_WR_RDMA_WRITE_WITH_IMM, 2, IBV_SEND_SIGNALED, 0, 10, &b, 0), 0);
	WANT_WC(a.send_cq, 2, IBV_WC_SUCCESS);
	WANT(wc.opcode, IBV_WC_RDMA_WRITE);
	WANT_WC(b.recv_cq, 7, IBV_WC_SUCCESS);
	WANT(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	WANT(wc.byte_len, 10);
	WANT(wc.wc_flags, IBV_WC_WITH_IMM);
	WANT(wc.imm_data, 0x04030201);
	WANT(b.buffer[9], 2);
	WANT(b.buffer[4090], 0);

	WANT(post(&a, IBV_WR_RDMA_READ, 3, IBV_SEND_SIGNALED, 2000, 1500, &b, 1000), 0);
	WANT_WC(a.send_cq, 3, IBV_WC_SUCCESS);
	WANT(wc.opcode, IBV_WC_RDMA_READ);
	WANT(wc.byte_len, 1500);
	WANT(memcmp(a.buffer + 2000, b.buffer + 1000, 1500), 0);
	WANT(a.buffer[3499], 1);
	WANT_NONE(b.recv_cq);

	WANT(post_recv(&b, 8, 0, 10), 0);
	WANT(post(&a, IBV_WR_SEND_WITH_IMM, 4, IBV_SEND_SIGNALED, 0, 0, NULL, 0), 0);
	WANT_WC(a.send_cq, 4, IBV_WC_SUCCESS);
	WANT_WC(b.recv_cq, 8, IBV_WC_SUCCESS);
	WANT(wc.opcode, IBV_WC_RECV);
	WANT(wc.byte_len, 0);
	WANT(wc.wc_flags, IBV_WC_WITH_IMM);
	WANT(wc.imm_data, 0x04030201);
	ends_down(&a, &b);
}

/* Gathered from three pieces and scattered to three of other lengths. */
void case_rc_pieces(void)
{
	struct end a, b;
	struct ibv_wc wc;
	ends_up(&a, &b, &usual);
	for (int i = 0; i < BUFFER; i++)
		a.buffer[i] = i;
	struct ibv_sge from[] = {sge_of(&a, 0, 5), sge_of(&a, 50, 1), sge_of(&a, 100, 9)};
	struct ibv_sge to[] = {sge_of(&b, 0, 1), sge_of(&b, 100, 8), sge_of(&b, 200, 20)};
	struct ibv_recv_wr recv = {.wr_id = 2, .sg_list = to, .num_sge = 3}, *bad_recv;
	struct ibv_send_wr send = {.wr_id = 1, .sg_list = from, .num_sge = 3, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	WANT(ibv_post_recv(b.qp, &recv, &bad_recv), 0);
	WANT(ibv_post_send(a.qp, &send, &bad), 0);
	WANT_WC(a.send_cq, 1, IBV_WC_SUCCESS);
	WANT_WC(b.recv_cq, 2, IBV_WC_SUCCESS);
	WANT(wc.byte_len, 15);
	static const uint8_t want[] = {0, 1, 2, 3, 4, 50, 100, 101, 102, 103, 104, 105, 106, 107, 108};
	WANT(b.buffer[0], want[0]);
	WANT(memcmp(b.buffer + 100, want + 1, 8), 0);
	WANT(memcmp(b.buffer + 200, want + 9, 6), 0);
	WANT(b.buffer[206], 0);
	ends_down(&a, &b);
}

/* Inline data is taken when it is posted, wherever it lies. */
void case_rc_inline(void)
{
	struct end a, b;
	struct ibv_wc wc;
	char text[] = "not registered";
	ends_up(&a, &b, &usual);
	struct ibv_sge sge = {.addr = (uintptr_t)text, .length = sizeof(text), .lkey = 12345};
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE}, *bad;
	WANT(ibv_post_send(a.qp, &wr, &bad), 0);
	memset(text, 'x', sizeof(text));
	WANT(post_recv(&b, 2, 0, 100), 0); /* the send has waited for it */
	WANT_WC(a.send_cq, 1, IBV_WC_SUCCESS);
	WANT_WC(b.recv_cq, 2, IBV_WC_SUCCESS);
	WANT(strcmp((char *)b.buffer, "not registered"), 0);
	ends_down(&a, &b);
}

/* An unsignaled request has no completion, unless the queue pair signals all. */
void case_rc_signal(void)
{
	struct end a, b;
	struct ibv_wc wc;
	ends_up(&a, &b, &usual);
	for (int i = 0; i < DEPTH - 1; i++)
		WANT(post(&a, IBV_WR_RDMA_WRITE, i, 0, 0, 8, &b, 0), 0);
	WANT_NONE(a.send_cq);
	WANT(post(&a, IBV_WR_RDMA_WRITE, 77, IBV_SEND_SIGNALED, 0, 8, &b, 0), 0);
	WANT_WC(a.send_cq, 77, IBV_WC_SUCCESS);
	WANT_NONE(a.send_cq);
	ends_down(&a, &b);

	struct options o = usual;
	o.sig_all = 1;
	ends_up(&a, &b, &o);
	WANT(post(&a, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, &b, 0), 0);
	WANT_WC(a.send_cq, 1, IBV_WC_SUCCESS);
	ends_down(&a, &b);
}

/* A list is done in order, and stops at the first that is refused. */
void case_rc_list(void)
{
	struct end a, b;
	struct ibv_wc wc[8];
	ends_up(&a, &b, &usual);
	struct ibv_send_wr wr[6], *bad = NULL;
	struct ibv_sge sge = sge_of(&a, 0, 8);
	memset(wr, 0, sizeof(wr));
	for (int i = 0; i < 6; i++) {
		wr[i].wr_id = i;
		wr[i].next = i < 5 ? &wr[i + 1] : NULL;
		wr[i].sg_list = &sge;
		wr[i].num_sge = 1;
		wr[i].opcode = i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
		wr[i].send_flags = IBV_SEND_SIGNALED;
		wr[i].wr.rdma.remote_addr = (uintptr_t)b.buffer;
		wr[i].wr.rdma.rkey = b.mr->rkey;
	}
	wr[4].opcode = IBV_WR_ATOMIC_FETCH_AND_ADD; /* not offered */
	WANT(ibv_post_send(a.qp, wr, &bad), EOPNOTSUPP);
	WANT(bad == &wr[4], true);
	for (int i = 0; i < 4; i++)
		WANT_SOON(ibv_poll_cq(a.send_cq, 1, &wc[i]), 1);
	WANT(ibv_poll_cq(a.send_cq, 1, &wc[4]), 0);
	for (int i = 0; i < 4; i++) {
		WANT(wc[i].wr_id, i);
		WANT(wc[i].opcode, i % 2 ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE);
	}
	ends_down(&a, &b);
}
