/* SPDX-License-Identifier: Apache-2.0
 *
 * wqe.c: posts requests to an RC queue pair of mlx5_0 that is connected to itself, and prints each with the block that the
 * library wrote to the send queue: the queue pair's number, the index, the opcode, the address and the key of the peer, the
 * address, the length and the key of the data, and the 64 bytes in hex. */
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NEED(cond)                                                                                                     \
	do {                                                                                                           \
		if (!(cond)) {                                                                                         \
			printf("%d: %s\n", __LINE__, #cond);                                                           \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

static uint8_t memory[4096] __attribute__((aligned(4096)));

static void connect_to_itself(struct ibv_context *context, struct ibv_qp *qp)
{
	const int access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access};
	struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num, .max_dest_rd_atomic = 1};
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
	rtr.ah_attr.is_global = rtr.ah_attr.port_num = 1;
	NEED(!ibv_query_gid(context, 1, 0, &rtr.ah_attr.grh.dgid));
	NEED(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	NEED(!ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	NEED(!ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					      IBV_QP_MAX_QP_RD_ATOMIC));
}

int main(void)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_SEND};
	struct ibv_context *context = NULL;
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	for (int i = 0; i < n && !context; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "mlx5_0"))
			context = ibv_open_device(list[i]);
	NEED(context);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	NEED(pd);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	NEED(mr && cq);
	struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
	attr.cap.max_send_wr = attr.cap.max_recv_wr = 8;
	attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);
	NEED(qp);
	connect_to_itself(context, qp);
	struct mlx5dv_qp queue = {0};
	struct mlx5dv_obj obj = {.qp = {.in = qp, .out = &queue}};
	NEED(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP));
	NEED(queue.sq.stride == 64);
	alarm(60); /* no completion comes */
	for (unsigned i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++) {
		struct ibv_sge data = {.addr = (uintptr_t)memory + 64 * i, .length = 10 + i, .lkey = mr->lkey}, into = {.addr = (uintptr_t)memory + 2048, .length = 64, .lkey = mr->lkey};
		struct ibv_send_wr wr = {.opcode = opcodes[i], .sg_list = &data, .num_sge = 1}, *bad;
		struct ibv_recv_wr recv = {.sg_list = &into, .num_sge = 1}, *bad_recv;
		struct ibv_wc wc;
		int left = 1;
		if (wr.opcode == IBV_WR_SEND) {
			NEED(!ibv_post_recv(qp, &recv, &bad_recv));
			left++;
		} else {
			wr.wr.rdma.remote_addr = (uintptr_t)memory + 3072 + 8 * i;
			wr.wr.rdma.rkey = mr->rkey;
		}
		NEED(!ibv_post_send(qp, &wr, &bad));
		for (int got; left; left -= got) {
			NEED((got = ibv_poll_cq(cq, 1, &wc)) >= 0);
			NEED(!got || wc.status == IBV_WC_SUCCESS);
		}
		printf("%u %u %u %llu %u %llu %u %u ", qp->qp_num, i, wr.opcode, (unsigned long long)wr.wr.rdma.remote_addr, wr.wr.rdma.rkey,
		       (unsigned long long)data.addr, data.length, data.lkey);
		const uint8_t *block = (const uint8_t *)queue.sq.buf + 64 * (i % queue.sq.wqe_cnt);
		for (int k = 0; k < 64; k++)
			printf("%02x", block[k]);
		puts("");
	}
	return 0;
}
