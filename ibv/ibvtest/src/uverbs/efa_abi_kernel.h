/* SPDX-License-Identifier: Apache-2.0
 *
 * efa_abi_kernel.h: the interface between libefa and the driver efa (rdma/efa-abi.h of rdma-core 65), and the
 * descriptors that libefa and the card exchange in memory (efa_io_defs.h). Descriptors are little-endian. */
#ifndef UVERBS_EFA_ABI_KERNEL_H
#define UVERBS_EFA_ABI_KERNEL_H

#include <stdint.h>

enum { EFA_USER_CMDS_SUPP_UDATA_QUERY_DEVICE = 1 << 0, EFA_USER_CMDS_SUPP_UDATA_CREATE_AH = 1 << 1 };
enum { EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_TX_BATCH = 1 << 0, EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_MIN_SQ_WR = 1 << 1 };

struct efa_ibv_alloc_ucontext_cmd {
	uint32_t supported_caps;
	uint8_t reserved_20[4];
};
struct efa_ibv_alloc_ucontext_resp {
	uint32_t comp_mask;
	uint32_t cmds_supp_udata_mask;
	uint16_t sub_cqs_per_cq;
	uint16_t inline_buf_size;
	uint32_t max_llq_size; /* bytes */
	uint16_t max_tx_batch; /* units of 64 bytes */
	uint16_t min_sq_wr;
	uint16_t inline_buf_size_ex;
	uint8_t reserved_b0[2];
};
struct efa_ibv_alloc_pd_resp {
	uint32_t comp_mask;
	uint16_t pdn;
	uint8_t reserved_30[2];
};
struct efa_ibv_create_cq {
	uint32_t comp_mask;
	uint32_t cq_entry_size;
	uint16_t num_sub_cqs;
	uint8_t flags;
	uint8_t reserved_58[5];
};
struct efa_ibv_create_cq_resp {
	uint32_t comp_mask;
	uint8_t reserved_20[4];
	uint64_t q_mmap_key;
	uint64_t q_mmap_size;
	uint16_t cq_idx;
	uint8_t reserved_d0[2];
	uint32_t db_off;
	uint64_t db_mmap_key;
};

enum { EFA_QP_DRIVER_TYPE_SRD };

struct efa_ibv_create_qp {
	uint32_t comp_mask;
	uint32_t rq_ring_size; /* bytes */
	uint32_t sq_ring_size; /* bytes */
	uint32_t driver_qp_type;
	uint16_t flags;
	uint8_t sl;
	uint8_t reserved_98[5];
};
struct efa_ibv_create_qp_resp {
	uint32_t comp_mask;
	uint32_t rq_db_offset;
	uint32_t sq_db_offset;
	uint32_t llq_desc_offset;
	uint64_t rq_mmap_key;
	uint64_t rq_mmap_size;
	uint64_t rq_db_mmap_key;
	uint64_t sq_db_mmap_key;
	uint64_t llq_desc_mmap_key;
	uint16_t send_sub_cq_idx;
	uint16_t recv_sub_cq_idx;
	uint8_t reserved_1e0[4];
};
struct efa_ibv_create_ah_resp {
	uint32_t comp_mask;
	uint16_t efa_address_handle;
	uint8_t reserved_30[2];
};

enum {
	EFA_QUERY_DEVICE_CAPS_RDMA_READ = 1 << 0,
	EFA_QUERY_DEVICE_CAPS_RNR_RETRY = 1 << 1,
	EFA_QUERY_DEVICE_CAPS_CQ_WITH_SGID = 1 << 3,
	EFA_QUERY_DEVICE_CAPS_RDMA_WRITE = 1 << 5,
	EFA_QUERY_DEVICE_CAPS_COMP_CNTR = 1 << 8,
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
	EFA_IB_ATTR_CREATE_COMP_CNTR_COMP_BUFFER = 1U << 12,
	EFA_IB_ATTR_CREATE_COMP_CNTR_ERR_BUFFER,
};

/* Descriptors. */

enum { EFA_IO_SEND_QUEUE = 1, EFA_IO_RECV_QUEUE };
enum { EFA_IO_SEND, EFA_IO_RDMA_READ, EFA_IO_RDMA_WRITE };

enum efa_io_comp_status {
	EFA_IO_COMP_STATUS_OK,
	EFA_IO_COMP_STATUS_FLUSHED,
	EFA_IO_COMP_STATUS_LOCAL_ERROR_QP_INTERNAL_ERROR,
	EFA_IO_COMP_STATUS_LOCAL_ERROR_UNSUPPORTED_OP,
	EFA_IO_COMP_STATUS_LOCAL_ERROR_INVALID_AH,
	EFA_IO_COMP_STATUS_LOCAL_ERROR_INVALID_LKEY,
	EFA_IO_COMP_STATUS_LOCAL_ERROR_BAD_LENGTH,
	EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_ADDRESS,
	EFA_IO_COMP_STATUS_REMOTE_ERROR_ABORT,
	EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_DEST_QPN,
	EFA_IO_COMP_STATUS_REMOTE_ERROR_RNR,
	EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_LENGTH,
	EFA_IO_COMP_STATUS_LOCAL_ERROR_UNREACH_REMOTE = 15,
};

enum {
	EFA_IO_TX_META_DESC_OP_TYPE = 0xf, EFA_IO_TX_META_DESC_HAS_IMM = 1 << 4, EFA_IO_TX_META_DESC_INLINE_MSG = 1 << 5, /* ctrl1 */
	EFA_IO_TX_META_DESC_COMP_REQ = 1 << 4,                                                                            /* ctrl2 */
};
struct efa_io_tx_meta_desc {
	uint16_t req_id;
	uint8_t ctrl1;
	uint8_t ctrl2;
	uint16_t dest_qp_num;
	uint16_t length; /* bytes of an inline message, else the number of buffers */
	uint32_t immediate_data;
	uint16_t ah;
	uint8_t ctrl3;
	uint8_t reserved;
	uint32_t qkey;
	uint8_t reserved2[6];
	uint16_t req_id_ex[3];
};
struct efa_io_tx_buf_desc {
	uint32_t length;
	uint32_t lkey; /* 24 bits */
	uint32_t buf_addr_lo;
	uint32_t buf_addr_hi;
};
struct efa_io_remote_mem_addr {
	uint32_t length;
	uint32_t rkey;
	uint32_t buf_addr_lo;
	uint32_t buf_addr_hi;
};
/* Both sizes of a request: the shorter one ends after 64 bytes. */
struct efa_io_tx_wqe_128 {
	struct efa_io_tx_meta_desc meta;
	union {
		struct efa_io_tx_buf_desc sgl[2];
		uint8_t inline_data[80];
		struct {
			struct efa_io_remote_mem_addr remote_mem;
			union {
				struct efa_io_tx_buf_desc local_mem[1];
				uint8_t inline_data[80];
			};
		} rdma_req;
	} data;
};

#define EFA_IO_RX_DESC_LKEY 0xffffffu
#define EFA_IO_RX_DESC_LAST (1u << 31)
struct efa_io_rx_desc {
	uint32_t buf_addr_lo;
	uint32_t buf_addr_hi;
	uint16_t req_id;
	uint16_t length;
	uint32_t lkey_ctrl;
};

enum { EFA_IO_CDESC_COMMON_PHASE = 1 << 0, EFA_IO_CDESC_COMMON_HAS_IMM = 1 << 3 }; /* flags; 2:1 queue, 6:4 operation */
/* A send's entry has the members up to qp_num, and then req_id_ex. */
struct efa_io_rx_cdesc_ex {
	uint16_t req_id;
	uint8_t status;
	uint8_t flags;
	uint16_t qp_num;
	uint16_t length; /* 15:0 */
	uint16_t ah;     /* 0xffff: no address handle of the sender */
	uint16_t src_qp_num;
	uint32_t imm;
	union {
		uint16_t length_hi; /* of a write */
		uint8_t src_addr[16];
	} u;
};

#endif
