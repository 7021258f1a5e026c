// SPDX-License-Identifier: Apache-2.0
// ends.c: two queue pairs that are connected.
#include "ends.h"

#include <sys/mman.h>

const struct options usual = {
	.access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
	.qp_access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
	.rnr_retry = 7,
};

static enum ibv_qp_type type_of(const struct options *o)
{
	return o->type ? o->type : IBV_QPT_RC;
}

void end_make(struct end *e, const char *device, const struct options *o)
{
	unsigned cqe = o->cqe ? o->cqe : DEPTH;
	NEED(e->context = open_device(device));
	NEED(e->pd = ibv_alloc_pd(e->context));
	NEED(e->send_cq = ibv_create_cq(e->context, cqe, NULL, NULL, 0));
	NEED(e->recv_cq = ibv_create_cq(e->context, cqe, NULL, NULL, 0));
	struct ibv_qp_init_attr a = qp_attr(e->send_cq, type_of(o));
	a.recv_cq = e->recv_cq;
	a.sq_sig_all = o->sig_all;
	a.cap.max_send_wr = a.cap.max_recv_wr = DEPTH;
	a.cap.max_send_sge = a.cap.max_recv_sge = 3;
	a.cap.max_inline_data = 100;
	NEED(e->qp = ibv_create_qp(e->pd, &a));
	e->buffer = mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(e->buffer != MAP_FAILED);
	NEED(e->mr = ibv_reg_mr(e->pd, e->buffer, BUFFER, IBV_ACCESS_LOCAL_WRITE | o->access));
}

void end_init(struct end *e, const struct options *o)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = o->qp_access, .qkey = 0x11111111};
	WANT(ibv_modify_qp(e->qp, &a,
			   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				   (type_of(o) == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
	     0);
}

void end_rtr(struct end *e, const struct end *peer, const struct options *o)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp->qp_num};
	a.rq_psn = 0xfffffe; /* wraps soon */
	a.max_dest_rd_atomic = 1;
	a.min_rnr_timer = 1; /* 10 us */
	a.ah_attr.is_global = a.ah_attr.port_num = 1;
	WANT(ibv_query_gid(peer->context, 1, 0, &a.ah_attr.grh.dgid), 0);
	int mask = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (type_of(o) == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	WANT(ibv_modify_qp(e->qp, &a, IBV_QP_STATE | (type_of(o) == IBV_QPT_UD ? 0 : mask)), 0);
}

void end_rts(struct end *e, const struct options *o)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS, .sq_psn = 0xfffffe, .max_rd_atomic = 1};
	a.timeout = o->timeout;
	a.retry_cnt = o->retry_cnt;
	a.rnr_retry = o->rnr_retry;
	int mask = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	WANT(ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | (type_of(o) == IBV_QPT_RC ? mask : 0)), 0);
}

void end_connect(struct end *a, struct end *b, const struct options *o)
{
	end_init(a, o);
	if (a != b)
		end_init(b, o);
	end_rtr(a, b, o);
	if (a != b)
		end_rtr(b, a, o);
	end_rts(a, o);
	if (a != b)
		end_rts(b, o);
}

void end_close(struct end *e)
{
	WANT(ibv_dereg_mr(e->mr), 0);
	WANT(ibv_destroy_qp(e->qp), 0);
	WANT(ibv_destroy_cq(e->send_cq), 0);
	WANT(ibv_destroy_cq(e->recv_cq), 0);
	WANT(ibv_dealloc_pd(e->pd), 0);
	WANT(ibv_close_device(e->context), 0);
	munmap(e->buffer, BUFFER);
}

void ends_up(struct end *near, struct end *far, const struct options *o)
{
	end_make(near, "mlx5_0", o);
	end_make(far, o->other_device ? "mlx5_1" : "mlx5_0", o);
	end_connect(near, far, o);
}

void ends_down(struct end *near, struct end *far)
{
	end_close(near);
	end_close(far);
}

int state_of(struct end *e)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	WANT(ibv_query_qp(e->qp, &a, IBV_QP_STATE, &init), 0);
	return a.qp_state;
}

int move(struct end *e, enum ibv_qp_state to)
{
	struct ibv_qp_attr a = {.qp_state = to};
	return ibv_modify_qp(e->qp, &a, IBV_QP_STATE);
}

struct ibv_sge sge_of(struct end *e, unsigned offset, unsigned length)
{
	return (struct ibv_sge){.addr = (uintptr_t)e->buffer + offset, .length = length, .lkey = e->mr->lkey};
}

int post_recv(struct end *e, uint64_t id, unsigned offset, unsigned length)
{
	struct ibv_sge sge = sge_of(e, offset, length);
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad = NULL;
	int err = ibv_post_recv(e->qp, &wr, &bad);
	WANT(bad == (err ? &wr : NULL), true);
	return err;
}

int post(struct end *e, enum ibv_wr_opcode opcode, uint64_t id, unsigned flags, unsigned offset, unsigned length,
	 struct end *remote, unsigned remote_offset)
{
	struct ibv_sge sge = sge_of(e, offset, length);
	struct ibv_send_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = flags}, *bad = NULL;
	wr.imm_data = 0x04030201;
	if (remote) {
		wr.wr.rdma.remote_addr = (uintptr_t)remote->buffer + remote_offset;
		wr.wr.rdma.rkey = remote->mr->rkey;
	}
	int err = ibv_post_send(e->qp, &wr, &bad);
	WANT(bad == (err ? &wr : NULL), true);
	return err;
}
