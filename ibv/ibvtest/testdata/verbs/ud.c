// SPDX-License-Identifier: Apache-2.0
// ud.c: datagrams and their address handles, and unreliable connections.
#include "ends.h"

#include <arpa/inet.h>

static const struct options ud = {.type = IBV_QPT_UD};

static struct ibv_ah *address(struct end *from, struct end *to)
{
	struct ibv_ah_attr a = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64, .flow_label = 0x12345, .traffic_class = 7}};
	WANT(ibv_query_gid(to->context, 1, 0, &a.grh.dgid), 0);
	return ibv_create_ah(from->pd, &a);
}

static int send_to(struct end *e, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey, uint64_t id, unsigned length)
{
	struct ibv_sge sge = sge_of(e, 0, length);
	struct ibv_send_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM, .send_flags = IBV_SEND_SIGNALED}, *bad;
	wr.imm_data = 0x04030201;
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = qkey;
	return ibv_post_send(e->qp, &wr, &bad);
}

void case_ud_send(void)
{
	struct end a, b;
	struct ibv_wc wc;
	struct options o = ud;
	o.other_device = true;
	ends_up(&a, &b, &o);
	struct ibv_ah *ah = address(&a, &b);
	NEED(ah);
	memset(a.buffer, 5, 100);
	WANT(post_recv(&b, 2, 0, 140), 0);
	WANT(send_to(&a, ah, b.qp->qp_num, 0x11111111, 1, 100), 0);
	WANT(ibv_destroy_ah(ah), 0);
	WANT_WC(a.send_cq, 1, IBV_WC_SUCCESS);
	WANT_WC(b.recv_cq, 2, IBV_WC_SUCCESS);
	WANT(wc.byte_len, 140); /* with the GRH */
	WANT(wc.src_qp, a.qp->qp_num);
	WANT(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
	WANT(wc.imm_data, 0x04030201);
	struct ibv_grh *grh = (struct ibv_grh *)(void *)b.buffer;
	union ibv_gid gid;
	WANT(ntohl(grh->version_tclass_flow), 0x60712345);
	WANT(ntohs(grh->paylen), 120);
	WANT(grh->next_hdr, 0x1b);
	WANT(grh->hop_limit, 64);
	WANT(ibv_query_gid(a.context, 1, 0, &gid), 0);
	WANT(memcmp(&grh->sgid, &gid, 16), 0);
	WANT(ibv_query_gid(b.context, 1, 0, &gid), 0);
	WANT(memcmp(&grh->dgid, &gid, 16), 0);
	/* The bytes before the payload are the destination's GID, which was compared above. Its last byte is a random MAC's. */
	WANT(b.buffer[40] == 5 && b.buffer[139] == 5 && !b.buffer[140], true);
	ends_down(&a, &b);
}

/* A lost message counts as sent. */
void case_ud_lost(void)
{
	struct end a, b;
	struct ibv_wc wc;
	ends_up(&a, &b, &ud);
	struct ibv_ah *ah = address(&a, &b);
	NEED(ah);
	WANT(send_to(&a, ah, b.qp->qp_num, 0x11111111, 1, 8), 0); /* no receive */
	WANT_WC(a.send_cq, 1, IBV_WC_SUCCESS);
	WANT(post_recv(&b, 2, 0, 100), 0);
	WANT(send_to(&a, ah, b.qp->qp_num, 0x22222222, 2, 8), 0); /* another key */
	WANT_WC(a.send_cq, 2, IBV_WC_SUCCESS);
	WANT(send_to(&a, ah, 0x123, 0x11111111, 3, 8), 0); /* no such queue pair */
	WANT_WC(a.send_cq, 3, IBV_WC_SUCCESS);
	WANT_NONE(b.recv_cq);
	WANT(send_to(&a, ah, b.qp->qp_num, 0x80000000, 4, 8), 0); /* the queue pair's own key */
	WANT_WC(a.send_cq, 4, IBV_WC_SUCCESS);
	WANT_WC(b.recv_cq, 2, IBV_WC_SUCCESS);
	WANT(ibv_destroy_ah(ah), 0);
	ends_down(&a, &b);
}

/* A send that fails stops the sends: state SQE, from which there is a way back to RTS. */
void case_ud_errors(void)
{
	struct end a, b;
	struct ibv_wc wc;
	ends_up(&a, &b, &ud);
	struct ibv_ah *ah = address(&a, &b);
	NEED(ah);
	WANT(post_recv(&a, 9, 0, 100), 0);
	uint32_t lkey = a.mr->lkey;
	a.mr->lkey ^= 1; /* a key of no region */
	WANT(send_to(&a, ah, b.qp->qp_num, 0x11111111, 1, 8), 0);
	a.mr->lkey = lkey;
	WANT_WC(a.send_cq, 1, IBV_WC_LOC_PROT_ERR);
	WANT(state_of(&a), IBV_QPS_SQE);
	WANT(send_to(&a, ah, b.qp->qp_num, 0x11111111, 2, 8), 0);
	WANT_WC(a.send_cq, 2, IBV_WC_WR_FLUSH_ERR);
	WANT_NONE(a.recv_cq); /* receives go on */
	WANT(move(&a, IBV_QPS_RTS), 0);
	WANT(post_recv(&b, 4, 0, 47), 0); /* a byte short */
	WANT(send_to(&a, ah, b.qp->qp_num, 0x11111111, 5, 8), 0);
	WANT_WC(a.send_cq, 5, IBV_WC_SUCCESS);
	WANT_WC(b.recv_cq, 4, IBV_WC_LOC_LEN_ERR);
	WANT(state_of(&b), IBV_QPS_ERR);
	WANT(ibv_dealloc_pd(a.pd), EBUSY);
	WANT(ibv_destroy_ah(ah), 0);
	ends_down(&a, &b);
}

/* Unreliable connections have an order and no acknowledgements. */
void case_uc(void)
{
	static const struct options uc = {.type = IBV_QPT_UC, .access = IBV_ACCESS_REMOTE_WRITE, .qp_access = IBV_ACCESS_REMOTE_WRITE};
	struct end a, b;
	struct ibv_wc wc;
	ends_up(&a, &b, &uc);
	memset(a.buffer, 3, 8);
	WANT(post(&a, IBV_WR_RDMA_WRITE, 1, IBV_SEND_SIGNALED, 0, 8, &b, 0), 0);
	WANT_WC(a.send_cq, 1, IBV_WC_SUCCESS);
	WANT(b.buffer[7], 3);
	WANT(post(&a, IBV_WR_RDMA_WRITE, 2, IBV_SEND_SIGNALED, 0, 8, &b, BUFFER), 0); /* dropped */
	WANT_WC(a.send_cq, 2, IBV_WC_SUCCESS);
	WANT(post(&a, IBV_WR_SEND, 3, IBV_SEND_SIGNALED, 0, 8, NULL, 0), 0); /* so is this: no receive */
	WANT_WC(a.send_cq, 3, IBV_WC_SUCCESS);
	WANT(state_of(&b), IBV_QPS_RTS);
	ends_down(&a, &b);
}
