// SPDX-License-Identifier: Apache-2.0
// rc.c: what ibv_post_send(3), ibv_post_recv(3) and ibv_poll_cq(3) say of what goes well.
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
	end_make(&a, "swnic0", &usual);
	end_connect(&a, &a, &usual);
	strcpy((char *)a.buffer, "to myself");
	WANT(post_recv(&a, 2, 100, 10), 0);
	WANT(post(&a, IBV_WR_SEND, 1, IBV_SEND_SIGNALED, 0, 10, NULL, 0), 0);
	WANT_WC(a.send_cq, 1, IBV_WC_SUCCESS);
	WANT_WC(a.recv_cq, 2, IBV_WC_SUCCESS);
	WANT(strcmp((char *)a.buffer + 100, "to myself"), 0);
	end_close(&a);
}
