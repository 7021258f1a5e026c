// SPDX-License-Identifier: Apache-2.0
// ring.c: the ring of a completion queue (mlx5dv_init_obj(3)), read by the macros of the
// distribution's <infiniband/mlx5dv.h> and beside ibv_poll_cq.
#include "comp_cntr.h"
#include "ends.h"

#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <unistd.h>

struct walker {
	struct mlx5dv_cq cq;
	uint32_t ci;
};

static int init(struct ibv_cq *cq, struct mlx5dv_cq *out, uint64_t type)
{
	static int (*verb)(struct mlx5dv_obj *, uint64_t);
	if (!verb)
		verb = (int (*)(struct mlx5dv_obj *, uint64_t))dlvsym(provider("libmlx5.so.1"), "mlx5dv_init_obj", "MLX5_1.2");
	NEED(verb);
	struct mlx5dv_obj obj = {.cq = {cq, out}};
	return verb(&obj, type);
}

/* The next entry that the device has written, or NULL: as in libmlx5's get_sw_cqe. */
static struct mlx5_cqe64 *next(struct walker *w)
{
	struct mlx5_cqe64 *e = (struct mlx5_cqe64 *)((char *)w->cq.buf + (w->ci & (w->cq.cqe_cnt - 1)) * w->cq.cqe_size);
	if (mlx5dv_get_cqe_opcode(e) == MLX5_CQE_INVALID || mlx5dv_get_cqe_owner(e) != !!(w->ci & w->cq.cqe_cnt))
		return NULL;
	w->ci++;
	return e;
}

static uint32_t consumed(struct walker *w)
{
	return be32toh(w->cq.dbrec[0]);
}

/* Each entry in the ring is the completion that ibv_poll_cq then returns, in every pass. */
void case_ring(void)
{
	struct end a, b;
	struct ibv_wc wc;
	struct walker sends = {0}, receives = {0};
	ends_up(&a, &b, &usual);
	WANT(init(a.send_cq, &sends.cq, MLX5DV_OBJ_CQ), 0);
	WANT(init(b.recv_cq, &receives.cq, MLX5DV_OBJ_CQ), 0);
	WANT(init(b.recv_cq, &receives.cq, MLX5DV_OBJ_CQ | MLX5DV_OBJ_PD), EOPNOTSUPP);
	WANT(init(b.recv_cq, &receives.cq, 0), EINVAL);
	WANT(sends.cq.cqe_cnt, 32); /* a power of two above DEPTH */
	WANT(sends.cq.cqe_size, 64);
	WANT(sends.cq.comp_mask, 0);
	WANT(sends.cq.cqn != receives.cq.cqn, true);
	WANT((uintptr_t)sends.cq.buf % 4096, 0);
	static const struct {
		enum ibv_wr_opcode opcode;
		unsigned length;
		uint8_t wqe, received; /* 0: nothing is */
		unsigned blocks;
	} ops[] = {
		{IBV_WR_SEND, 100, MLX5_OPCODE_SEND, MLX5_CQE_RESP_SEND, 1},
		{IBV_WR_RDMA_READ, 80, MLX5_OPCODE_RDMA_READ, 0, 1},
		{IBV_WR_SEND_WITH_IMM, 0, MLX5_OPCODE_SEND_IMM, MLX5_CQE_RESP_SEND_IMM, 1},
		{IBV_WR_RDMA_WRITE, 8, MLX5_OPCODE_RDMA_WRITE, 0, 1},
		{IBV_WR_RDMA_WRITE_WITH_IMM, 8, MLX5_OPCODE_RDMA_WRITE_IMM, MLX5_CQE_RESP_WR_IMM, 1},
	};
	uint16_t block = 0, received = 0;
	for (unsigned i = 0; i < 110; i++) {
		unsigned k = i % 5;
		if (ops[k].received)
			WANT(post_recv(&b, i, 0, 100), 0);
		WANT(post(&a, ops[k].opcode, i, IBV_SEND_SIGNALED, 0, ops[k].length, &b, 0), 0);
		struct mlx5_cqe64 *e = next(&sends);
		NEED(e);
		WANT(mlx5dv_get_cqe_opcode(e), MLX5_CQE_REQ);
		WANT(be32toh(e->sop_drop_qpn), (uint32_t)ops[k].wqe << 24 | a.qp->qp_num);
		WANT(be16toh(e->wqe_counter), block);
		WANT(be32toh(e->byte_cnt), ops[k].opcode == IBV_WR_RDMA_READ ? 80 : 0);
		WANT(e->timestamp != 0, true);
		block += ops[k].blocks;
		WANT(next(&sends) == NULL, true);
		WANT(consumed(&sends), i);
		WANT_WC(a.send_cq, i, IBV_WC_SUCCESS);
		WANT(consumed(&sends), i + 1);
		WANT(mlx5dv_get_cqe_opcode(e), MLX5_CQE_REQ); /* polling leaves it as it is */
		if (!ops[k].received)
			continue;
		NEED(e = next(&receives));
		WANT(mlx5dv_get_cqe_opcode(e), ops[k].received);
		WANT(be32toh(e->sop_drop_qpn) & 0xffffff, b.qp->qp_num);
		WANT(be16toh(e->wqe_counter), received++);
		WANT(be32toh(e->byte_cnt), ops[k].length);
		WANT(e->imm_inval_pkey, ops[k].received == MLX5_CQE_RESP_SEND ? 0 : 0x04030201);
		WANT_WC(b.recv_cq, i, IBV_WC_SUCCESS);
	}
	/* An error, and the requests that it flushes. */
	WANT(post_recv(&b, 1, 0, 4), 0);
	WANT(post(&a, IBV_WR_SEND, 200, 0, 0, 8, NULL, 0), 0);
	WANT(post(&a, IBV_WR_RDMA_READ, 201, 0, 0, 8, &b, 0), 0);
	struct mlx5_err_cqe *e = (struct mlx5_err_cqe *)next(&sends);
	NEED(e);
	WANT(e->op_own >> 4, MLX5_CQE_REQ_ERR);
	WANT(e->syndrome, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
	WANT(be32toh(e->s_wqe_opcode_qpn), (uint32_t)MLX5_OPCODE_SEND << 24 | a.qp->qp_num);
	WANT(be16toh(e->wqe_counter), block);
	NEED(e = (struct mlx5_err_cqe *)next(&sends));
	WANT(e->syndrome, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
	WANT(be32toh(e->s_wqe_opcode_qpn) >> 24, MLX5_OPCODE_RDMA_READ);
	NEED(e = (struct mlx5_err_cqe *)next(&receives));
	WANT(e->op_own >> 4, MLX5_CQE_RESP_ERR);
	WANT(e->syndrome, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
	WANT_WC(a.send_cq, 200, IBV_WC_REM_INV_REQ_ERR);
	WANT_WC(a.send_cq, 201, IBV_WC_WR_FLUSH_ERR);
	/* The owner of an exposed ring keeps it: a queue pair's reset or end removes no entry. */
	WANT(post_recv(&b, 1, 0, 4), 0);
	WANT(move(&b, IBV_QPS_RESET), 0);
	WANT(ibv_poll_cq(b.recv_cq, 1, &wc), -1);
	WANT(ibv_destroy_qp(b.qp), 0);
	WANT(ibv_poll_cq(b.recv_cq, 1, &wc), -1);
	struct ibv_qp_init_attr again = qp_attr(b.send_cq, IBV_QPT_RC);
	NEED(b.qp = ibv_create_qp(b.pd, &again));
	ends_down(&a, &b);
}

/* Work requests are numbered by the blocks of 64 bytes that they take. */
void case_ring_blocks(void)
{
	struct end a, b;
	struct ibv_wc wc;
	struct walker sends = {0};
	ends_up(&a, &b, &usual);
	WANT(init(a.send_cq, &sends.cq, MLX5DV_OBJ_CQ), 0);
	struct ibv_sge sge[3] = {sge_of(&a, 0, 1), sge_of(&a, 1, 1), sge_of(&a, 2, 1)};
	struct ibv_send_wr wr = {.sg_list = sge, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED}, *bad;
	wr.wr.rdma.remote_addr = (uintptr_t)b.buffer;
	wr.wr.rdma.rkey = b.mr->rkey;
	uint16_t want = 0;
	for (int i = 0; i < 60; i++) {
		wr.wr_id = i;
		wr.num_sge = 1 + i % 3; /* 48, 64, 80 bytes */
		WANT(ibv_post_send(a.qp, &wr, &bad), 0);
		struct mlx5_cqe64 *e = next(&sends);
		NEED(e);
		WANT(be16toh(e->wqe_counter), want);
		want += wr.num_sge == 3 ? 2 : 1;
		WANT_WC(a.send_cq, i, IBV_WC_SUCCESS);
	}
	ends_down(&a, &b);
}

/* The device reads the doorbell record: a consumer that does not move it overruns the queue. */
void case_ring_overrun(void)
{
	struct end a, b;
	struct ibv_wc wc;
	struct walker sends = {0};
	struct options o = usual;
	o.cqe = 3;
	ends_up(&a, &b, &o);
	WANT(init(a.send_cq, &sends.cq, MLX5DV_OBJ_CQ), 0);
	for (int i = 0; i < 5; i++) {
		WANT(post(&a, IBV_WR_RDMA_WRITE, i, IBV_SEND_SIGNALED, 0, 8, &b, 0), 0);
		NEED(next(&sends));
		sends.cq.dbrec[0] = htobe32(sends.ci);
	}
	for (int i = 0; i < 4; i++)
		WANT(post(&a, IBV_WR_RDMA_WRITE, i, IBV_SEND_SIGNALED, 0, 8, &b, 0), 0);
	WANT(next_event(a.context), IBV_EVENT_CQ_ERR);
	WANT(ibv_poll_cq(a.send_cq, 1, &wc), -1);
	ends_down(&a, &b);
}

/* WITHOUT=devx,swnic1/cq_ring: not mlx5, and one without; both have queues that count. */
void case_ring_absent(void)
{
	struct end a, b;
	struct mlx5dv_cq cq;
	end_make(&a, "swnic0", &usual);
	end_make(&b, "swnic1", &usual);
	WANT(init(a.send_cq, &cq, MLX5DV_OBJ_CQ), EOPNOTSUPP);
	WANT(init(b.send_cq, &cq, MLX5DV_OBJ_CQ), EOPNOTSUPP);
	ends_down(&a, &b);
}
