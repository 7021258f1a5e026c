/* SPDX-License-Identifier: Apache-2.0
 *
 * efa_abi_kernel.h: the interface between libefa and the driver efa: the names, sizes and values of rdma/efa-abi.h, as
 * far as the uverbs kernel in software serves them. */
#ifndef EFA_ABI_KERNEL_H
#define EFA_ABI_KERNEL_H

#include "uverbs_abi.h"

enum { EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_TX_BATCH = 1, EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_MIN_SQ_WR = 2 };
enum { EFA_USER_CMDS_SUPP_UDATA_QUERY_DEVICE = 1, EFA_USER_CMDS_SUPP_UDATA_CREATE_AH = 2 };

struct efa_ibv_alloc_ucontext_cmd {
	uint32_t supported_caps;
	uint8_t reserved_20[4];
};

struct efa_ibv_alloc_ucontext_resp {
	uint32_t comp_mask;
	uint32_t cmds_supp_udata_mask;
	uint16_t sub_cqs_per_cq;
	uint16_t inline_buf_size;
	uint32_t max_llq_size;
	uint16_t max_tx_batch;
	uint16_t min_sq_wr;
	uint16_t inline_buf_size_ex;
	uint8_t reserved_b0[2];
};

struct efa_ibv_alloc_pd_resp {
	uint32_t comp_mask;
	uint16_t pdn;
	uint8_t reserved_30[2];
};

struct efa_ibv_create_ah_resp {
	uint32_t comp_mask;
	uint16_t efa_address_handle;
	uint8_t reserved_30[2];
};

struct efa_ibv_ex_query_device_resp {
	uint32_t comp_mask;
	uint32_t max_sq_wr;
	uint32_t max_rq_wr;
	uint16_t max_sq_sge;
	uint16_t max_rq_sge;
	uint32_t max_rdma_size;
	uint32_t device_caps;
};

enum {
	EFA_QUERY_DEVICE_CAPS_RDMA_READ = 1 << 0,
	EFA_QUERY_DEVICE_CAPS_RNR_RETRY = 1 << 1,
	EFA_QUERY_DEVICE_CAPS_CQ_NOTIFICATIONS = 1 << 2,
	EFA_QUERY_DEVICE_CAPS_CQ_WITH_SGID = 1 << 3,
	EFA_QUERY_DEVICE_CAPS_DATA_POLLING_128 = 1 << 4,
	EFA_QUERY_DEVICE_CAPS_RDMA_WRITE = 1 << 5,
	EFA_QUERY_DEVICE_CAPS_UNSOLICITED_WRITE_RECV = 1 << 6,
	EFA_QUERY_DEVICE_CAPS_CQ_WITH_EXT_MEM = 1 << 7,
	EFA_QUERY_DEVICE_CAPS_COMP_CNTR = 1 << 8,
};

#endif
