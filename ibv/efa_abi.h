/* SPDX-License-Identifier: Apache-2.0
 *
 * efa_abi.h: the part of libefa's direct verbs that this package uses, as verbs_abi.h is for
 * libibverbs. Names and layouts come from <infiniband/efadv.h> and <infiniband/verbs.h> of
 * rdma-core 65. SRD queue pairs are of EFA_1.1, and completion counters are new (EFA_1.7). */
#ifndef FLOWTALLY_EFA_ABI_H
#define FLOWTALLY_EFA_ABI_H

#include "internal/abi/verbs_abi.h"

#define EFADV_MEMORY_LOCATION_VA 0

struct efadv_memory_location {
	uint8_t *ptr;
	struct {
		uint64_t offset;
		int32_t fd;
		uint32_t reserved;
	} dmabuf;
	uint8_t type;
	uint8_t reserved[7];
};

#define EFADV_COMP_CNTR_INIT_WITH_COMP_EXTERNAL_MEM 1
#define EFADV_COMP_CNTR_INIT_WITH_ERR_EXTERNAL_MEM 2

struct efadv_comp_cntr_init_attr {
	uint64_t comp_mask;
	uint32_t flags;
	uint32_t reserved;
	struct efadv_memory_location comp_cntr_ext_mem;
	struct efadv_memory_location err_cntr_ext_mem;
};

#define EFADV_DEVICE_ATTR_CAPS_RDMA_READ 1
#define EFADV_DEVICE_ATTR_CAPS_RDMA_WRITE 8

/* Two reserved bytes lie before device_caps. */
struct efadv_device_attr {
	uint64_t comp_mask;
	uint32_t max_sq_wr, max_rq_wr;
	uint16_t max_sq_sge, max_rq_sge, inline_buf_size;
	uint32_t device_caps, max_rdma_size;
};

#define IBV_QPT_DRIVER 255
#define EFADV_QP_DRIVER_TYPE_SRD 0

/* As in rdma-core 44, whose last four bytes are reserved: later releases have flags there. */
struct efadv_qp_init_attr {
	uint64_t comp_mask;
	uint32_t driver_qp_type;
};

#define IBV_QP_INIT_ATTR_PD 1
#define IBV_QP_INIT_ATTR_SEND_OPS_FLAGS 64
#define IBV_QP_EX_WITH_RDMA_WRITE 1
#define IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM 2
#define IBV_QP_EX_WITH_SEND 4
#define IBV_QP_EX_WITH_SEND_WITH_IMM 8
#define IBV_QP_EX_WITH_RDMA_READ 16

struct ibv_rx_hash_conf {
	uint8_t rx_hash_function, rx_hash_key_len;
	uint8_t *rx_hash_key;
	uint64_t rx_hash_fields_mask;
};

struct ibv_qp_init_attr_ex {
	void *qp_context;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp_cap cap;
	uint32_t qp_type;
	int sq_sig_all;
	uint32_t comp_mask;
	struct ibv_pd *pd;
	void *xrcd;
	uint32_t create_flags;
	uint16_t max_tso_header;
	void *rwq_ind_tbl;
	struct ibv_rx_hash_conf rx_hash_conf;
	uint32_t source_qpn;
	uint64_t send_ops_flags;
};

/* A queue pair that was made with IBV_QP_INIT_ATTR_SEND_OPS_FLAGS. Its first member is the struct
 * that the create call returns (ibv_qp_to_qp_ex(3)). A builder that this package does not call is
 * a void pointer. Later releases add members at the end. */
struct ibv_qp_ex {
	struct ibv_qp qp_base;
	uint64_t comp_mask, wr_id;
	unsigned int wr_flags;
	void *wr_atomic_cmp_swp, *wr_atomic_fetch_add, *wr_bind_mw, *wr_local_inv;
	void (*wr_rdma_read)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr);
	void (*wr_rdma_write)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr);
	void (*wr_rdma_write_imm)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, uint32_t imm_data);
	void (*wr_send)(struct ibv_qp_ex *qp);
	void (*wr_send_imm)(struct ibv_qp_ex *qp, uint32_t imm_data);
	void *wr_send_inv, *wr_send_tso;
	void (*wr_set_ud_addr)(struct ibv_qp_ex *qp, struct ibv_ah *ah, uint32_t remote_qpn, uint32_t remote_qkey);
	void *wr_set_xrc_srqn;
	void (*wr_set_inline_data)(struct ibv_qp_ex *qp, void *addr, size_t length);
	void *wr_set_inline_data_list;
	void (*wr_set_sge)(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr, uint32_t length);
	void (*wr_set_sge_list)(struct ibv_qp_ex *qp, size_t num_sge, const struct ibv_sge *sg_list);
	void (*wr_start)(struct ibv_qp_ex *qp);
	int (*wr_complete)(struct ibv_qp_ex *qp);
	void (*wr_abort)(struct ibv_qp_ex *qp);
};

#endif
