/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_wr_abi.h: verbs_abi.h continued: work requests, work completions and address handles. */
#ifndef FLOWTALLY_IBVTEST_VERBS_WR_ABI_H
#define FLOWTALLY_IBVTEST_VERBS_WR_ABI_H

#include "verbs_abi.h"

struct ibv_sge {
	uint64_t addr;
	uint32_t length, lkey;
};

enum {
	IBV_WR_RDMA_WRITE,
	IBV_WR_RDMA_WRITE_WITH_IMM,
	IBV_WR_SEND,
	IBV_WR_SEND_WITH_IMM,
	IBV_WR_RDMA_READ,
};

enum {
	IBV_SEND_FENCE = 1 << 0,
	IBV_SEND_SIGNALED = 1 << 1,
	IBV_SEND_SOLICITED = 1 << 2,
	IBV_SEND_INLINE = 1 << 3,
	IBV_SEND_IP_CSUM = 1 << 4,
};

struct ibv_ah {
	struct ibv_context *context;
	struct ibv_pd *pd;
	uint32_t handle;
};

union soft_wr {
	struct {
		uint64_t remote_addr;
		uint32_t rkey;
	} rdma;
	struct {
		uint64_t remote_addr, compare_add, swap;
		uint32_t rkey;
	} atomic;
	struct {
		struct ibv_ah *ah;
		uint32_t remote_qpn, remote_qkey;
	} ud;
};

struct ibv_send_wr {
	uint64_t wr_id;
	struct ibv_send_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
	uint32_t opcode;
	unsigned int send_flags;
	uint32_t imm_data; /* big endian */
	union soft_wr wr;
	uint32_t qp_type;    /* of XRC; not used */
	uint64_t bind_mw[6]; /* and TSO; not used */
};

struct ibv_recv_wr {
	uint64_t wr_id;
	struct ibv_recv_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
};

enum {
	IBV_WC_SUCCESS,
	IBV_WC_LOC_LEN_ERR,
	IBV_WC_LOC_QP_OP_ERR,
	IBV_WC_LOC_PROT_ERR = 4,
	IBV_WC_WR_FLUSH_ERR,
	IBV_WC_BAD_RESP_ERR = 7,
	IBV_WC_LOC_ACCESS_ERR,
	IBV_WC_REM_INV_REQ_ERR,
	IBV_WC_REM_ACCESS_ERR,
	IBV_WC_REM_OP_ERR,
	IBV_WC_RETRY_EXC_ERR,
	IBV_WC_RNR_RETRY_EXC_ERR,
	IBV_WC_GENERAL_ERR = 21,
};

enum {
	IBV_WC_SEND,
	IBV_WC_RDMA_WRITE,
	IBV_WC_RDMA_READ,
	IBV_WC_RECV = 1 << 7,
	IBV_WC_RECV_RDMA_WITH_IMM,
};

enum {
	IBV_WC_GRH = 1 << 0,
	IBV_WC_WITH_IMM = 1 << 1,
};

#endif
