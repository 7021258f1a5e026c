// SPDX-License-Identifier: Apache-2.0
// faulty.c: the rules of ibv_poll_cq(3) for failing work, at both ends, and for the requests behind
// it.
#include "ends.h"

#include <sys/mman.h>
#include <unistd.h>

/* The effect of one bad work request. */
struct fault {
	const char *name;
	enum ibv_wr_opcode opcode;
	unsigned length, receive;  /* receive: bytes of the posted one; 0: none is */
	uint32_t lkey, rkey, recv_lkey; /* XORed on the true ones */
	uint64_t remote_offset;
	unsigned access, qp_access; /* that the far end has not */
	int near, far;              /* statuses; far -1: no completion */
	int event;                  /* of the far end; -1: none */
};

enum { R = IBV_ACCESS_REMOTE_READ, W = IBV_ACCESS_REMOTE_WRITE };

static const struct fault faults[] = {
	{"a local key that is not", IBV_WR_SEND, 8, 8, 1, 0, 0, 0, 0, 0, IBV_WC_LOC_PROT_ERR, -1, -1},
	{"more than the region", IBV_WR_SEND, BUFFER + 1, BUFFER, 0, 0, 0, 0, 0, 0, IBV_WC_LOC_PROT_ERR, -1, -1},
	{"a receive's key that is not", IBV_WR_SEND, 8, 8, 0, 0, 1, 0, 0, 0, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR, -1},
	{"a receive too short", IBV_WR_SEND, 9, 8, 0, 0, 0, 0, 0, 0, IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR, -1},
	{"a remote key that is not", IBV_WR_RDMA_WRITE, 8, 0, 0, 1, 0, 0, 0, 0, IBV_WC_REM_ACCESS_ERR, -1, IBV_EVENT_QP_ACCESS_ERR},
	{"behind the remote region", IBV_WR_RDMA_WRITE, 8, 0, 0, 0, 0, BUFFER - 7, 0, 0, IBV_WC_REM_ACCESS_ERR, -1, IBV_EVENT_QP_ACCESS_ERR},
	{"before the remote region", IBV_WR_RDMA_READ, 8, 0, 0, 0, 0, -1, 0, 0, IBV_WC_REM_ACCESS_ERR, -1, IBV_EVENT_QP_ACCESS_ERR},
	{"a region not to be written", IBV_WR_RDMA_WRITE, 8, 0, 0, 0, 0, 0, W, 0, IBV_WC_REM_ACCESS_ERR, -1, IBV_EVENT_QP_ACCESS_ERR},
	{"a region not to be read", IBV_WR_RDMA_READ, 8, 0, 0, 0, 0, 0, R, 0, IBV_WC_REM_ACCESS_ERR, -1, IBV_EVENT_QP_ACCESS_ERR},
	{"a queue pair not to write through", IBV_WR_RDMA_WRITE, 8, 0, 0, 0, 0, 0, 0, W, IBV_WC_REM_INV_REQ_ERR, -1, IBV_EVENT_QP_REQ_ERR},
	{"a queue pair not to read through", IBV_WR_RDMA_READ, 8, 0, 0, 0, 0, 0, 0, R, IBV_WC_REM_INV_REQ_ERR, -1, IBV_EVENT_QP_REQ_ERR},
	{"immediate data, and a remote key that is not", IBV_WR_RDMA_WRITE_WITH_IMM, 8, 8, 0, 1, 0, 0, 0, 0, IBV_WC_REM_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR, IBV_EVENT_QP_ACCESS_ERR},
};

static void one(const struct fault *f)
{
	struct end a, b;
	struct ibv_wc wc;
	struct options o = usual;
	o.access &= ~f->access;
	o.qp_access &= ~f->qp_access;
	end_make(&a, "mlx5_0", &usual);
	end_make(&b, "mlx5_1", &o);
	end_connect(&a, &b, &o);
	if (f->receive) {
		struct ibv_sge sge = sge_of(&b, 0, f->receive);
		sge.lkey ^= f->recv_lkey;
		struct ibv_recv_wr wr = {.wr_id = 20, .sg_list = &sge, .num_sge = 1}, *bad;
		WANT(ibv_post_recv(b.qp, &wr, &bad), 0);
	}
	memset(a.buffer, 9, 16);
	struct ibv_sge sge = sge_of(&a, 0, f->length);
	sge.lkey ^= f->lkey;
	/* Unsignaled: an error completes nevertheless. */
	struct ibv_send_wr wr = {.wr_id = 10, .sg_list = &sge, .num_sge = 1, .opcode = f->opcode}, *bad;
	wr.wr.rdma.remote_addr = (uintptr_t)b.buffer + f->remote_offset;
	wr.wr.rdma.rkey = b.mr->rkey ^ f->rkey;
	WANT(ibv_post_send(a.qp, &wr, &bad), 0);
	WANT(post(&a, IBV_WR_RDMA_WRITE, 11, 0, 0, 8, &b, 0), 0); /* behind it */
	WANT_WC(a.send_cq, 10, f->near);
	WANT(wc.qp_num, a.qp->qp_num);
	WANT_WC(a.send_cq, 11, IBV_WC_WR_FLUSH_ERR);
	WANT_NONE(a.send_cq);
	WANT(state_of(&a), IBV_QPS_ERR);
	WANT(b.buffer[0], 0);
	if (f->far >= 0)
		WANT_WC(b.recv_cq, 20, f->far);
	WANT_NONE(b.recv_cq);
	WANT(state_of(&b), f->far >= 0 || f->event >= 0 ? IBV_QPS_ERR : IBV_QPS_RTS);
	if (f->event >= 0)
		WANT(next_event(b.context), f->event);
	ends_down(&a, &b);
}

void case_wc_faults(void)
{
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		int before = failures;
		one(&faults[i]);
		if (failures != before)
			printf("... with %s\n", faults[i].name);
	}
}

/* Keys are of a domain, and go with their region. */
void case_wc_keys(void)
{
	struct end a, b;
	struct ibv_wc wc;
	ends_up(&a, &b, &usual);
	struct ibv_pd *other = ibv_alloc_pd(a.context);
	struct ibv_mr *mr = ibv_reg_mr(other, a.buffer, BUFFER, IBV_ACCESS_LOCAL_WRITE);
	NEED(mr);
	struct ibv_sge sge = {.addr = (uintptr_t)a.buffer, .length = 8, .lkey = mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
	WANT(post_recv(&b, 2, 0, 8), 0);
	WANT(ibv_post_send(a.qp, &wr, &bad), 0);
	WANT_WC(a.send_cq, 1, IBV_WC_LOC_PROT_ERR);
	WANT(ibv_dereg_mr(mr), 0);
	WANT(ibv_dealloc_pd(other), 0);
	ends_down(&a, &b);

	/* Reads are written into memory: it must be made for that. */
	ends_up(&a, &b, &usual);
	mr = ibv_reg_mr(a.pd, a.buffer, BUFFER, 0);
	NEED(mr);
	wr.opcode = IBV_WR_RDMA_READ;
	wr.wr.rdma.remote_addr = (uintptr_t)b.buffer;
	wr.wr.rdma.rkey = b.mr->rkey;
	sge.addr = (uintptr_t)a.buffer;
	sge.lkey = mr->lkey;
	WANT(ibv_post_send(a.qp, &wr, &bad), 0);
	WANT_WC(a.send_cq, 1, IBV_WC_LOC_PROT_ERR);
	WANT(ibv_dereg_mr(mr), 0);
	ends_down(&a, &b);

	ends_up(&a, &b, &usual);
	uint32_t rkey = b.mr->rkey;
	WANT(ibv_dereg_mr(b.mr), 0);
	sge.lkey = a.mr->lkey;
	sge.addr = (uintptr_t)a.buffer;
	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.wr.rdma.remote_addr = (uintptr_t)b.buffer;
	wr.wr.rdma.rkey = rkey;
	WANT(ibv_post_send(a.qp, &wr, &bad), 0);
	WANT_WC(a.send_cq, 1, IBV_WC_REM_ACCESS_ERR);
	NEED(b.mr = ibv_reg_mr(b.pd, b.buffer, BUFFER, 0));
	ends_down(&a, &b);
}

/* A region may have addresses of its own: both ends use them in work requests. */
void case_mr_iova(void)
{
	struct end a, b;
	struct ibv_wc wc;
	ends_up(&a, &b, &usual);
	struct ibv_mr *near = ibv_reg_mr_iova(a.pd, a.buffer, BUFFER, 0, 0);
	struct ibv_mr *far = ibv_reg_mr_iova(b.pd, b.buffer, BUFFER, 1 << 20, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	NEED(near && far);
	memset(a.buffer + 100, 6, 8);
	struct ibv_sge sge = {.addr = 100, .length = 8, .lkey = near->lkey};
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED}, *bad;
	wr.wr.rdma.remote_addr = (1 << 20) + BUFFER - 8;
	wr.wr.rdma.rkey = far->rkey;
	WANT(ibv_post_send(a.qp, &wr, &bad), 0);
	WANT_WC(a.send_cq, 1, IBV_WC_SUCCESS);
	WANT(b.buffer[BUFFER - 9] == 0 && b.buffer[BUFFER - 8] == 6 && b.buffer[BUFFER - 1] == 6, true);
	wr.wr_id = 2;
	wr.wr.rdma.remote_addr = (uintptr_t)b.buffer; /* not its name */
	WANT(ibv_post_send(a.qp, &wr, &bad), 0);
	WANT_WC(a.send_cq, 2, IBV_WC_REM_ACCESS_ERR);
	WANT(ibv_dereg_mr(near), 0);
	WANT(ibv_dereg_mr(far), 0);
	ends_down(&a, &b);
}

void case_mr(void)
{
	struct end a;
	end_make(&a, "mlx5_0", &usual);
	uint8_t *p = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(p != MAP_FAILED);
	WANT_NULL(ibv_reg_mr(a.pd, p, 0, 0), EINVAL);
	WANT_NULL(ibv_reg_mr(a.pd, p, 8192, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	WANT_NULL(ibv_reg_mr(a.pd, p, 8192, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	munmap(p + 4096, 4096);
	WANT_NULL(ibv_reg_mr(a.pd, p, 4097, 0), EFAULT);
	struct ibv_mr *mr = ibv_reg_mr(a.pd, p + 1, 4095, IBV_ACCESS_REMOTE_READ);
	NEED(mr);
	WANT(ibv_dealloc_pd(a.pd), EBUSY);
	WANT(ibv_dereg_mr(mr), 0);
	munmap(p, 4096);
	end_close(&a);
}
