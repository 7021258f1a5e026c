/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_abi_kernel.h: the interface between libmlx5 and mlx5_ib: the names, sizes and values of rdma/mlx5-abi.h and
 * mlx5_user_ioctl_cmds.h, as far as the uverbs kernel in software serves them. */
#ifndef MLX5_ABI_KERNEL_H
#define MLX5_ABI_KERNEL_H

#include "uverbs_abi.h"

enum mlx5_ib_objects {
	MLX5_IB_OBJECT_DEVX = 1 << UVERBS_ID_NS_SHIFT,
	MLX5_IB_OBJECT_DEVX_OBJ,
	MLX5_IB_OBJECT_DEVX_UMEM,
	MLX5_IB_OBJECT_FLOW_MATCHER,
	MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD,
	MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD,
	MLX5_IB_OBJECT_VAR,
	MLX5_IB_OBJECT_PP,
	MLX5_IB_OBJECT_UAR,
	MLX5_IB_OBJECT_STEERING_ANCHOR,
};

enum { MLX5_IB_METHOD_UAR_OBJ_ALLOC = 1 << UVERBS_ID_NS_SHIFT, MLX5_IB_METHOD_UAR_OBJ_DESTROY };
enum {
	MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE = 1 << UVERBS_ID_NS_SHIFT,
	MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE,
	MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET,
	MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH,
	MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID,
};
enum { MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE = 1 << UVERBS_ID_NS_SHIFT };
enum { MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF, MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC };

enum mlx5_lib_caps { MLX5_LIB_CAP_4K_UAR = 1, MLX5_LIB_CAP_DYN_UAR = 2 };
enum { MLX5_IB_ALLOC_UCTX_DEVX = 1 };
enum { MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE = 1, MLX5_USER_CMDS_SUPP_UHW_CREATE_AH = 2 };
enum { MLX5_USER_INLINE_MODE_NA, MLX5_USER_INLINE_MODE_NONE, MLX5_USER_INLINE_MODE_L2 };

struct mlx5_ib_alloc_ucontext_req_v2 {
	uint32_t total_num_bfregs;
	uint32_t num_low_latency_bfregs;
	uint32_t flags;
	uint32_t comp_mask;
	uint8_t max_cqe_version;
	uint8_t reserved0;
	uint16_t reserved1;
	uint32_t reserved2;
	uint64_t lib_caps;
};

struct mlx5_ib_alloc_ucontext_resp {
	uint32_t qp_tab_size;
	uint32_t bf_reg_size;
	uint32_t tot_bfregs;
	uint32_t cache_line_size;
	uint16_t max_sq_desc_sz;
	uint16_t max_rq_desc_sz;
	uint32_t max_send_wqebb;
	uint32_t max_recv_wr;
	uint32_t max_srq_recv_wr;
	uint16_t num_ports;
	uint16_t flow_action_flags;
	uint32_t comp_mask;
	uint32_t response_length;
	uint8_t cqe_version;
	uint8_t cmds_supp_uhw;
	uint8_t eth_min_inline;
	uint8_t clock_info_versions;
	uint64_t hca_core_clock_offset;
	uint32_t log_uar_size;
	uint32_t num_uars_per_page;
	uint32_t num_dyn_bfregs;
	uint32_t dump_fill_mkey;
};

struct mlx5_ib_alloc_pd_resp {
	uint32_t pdn;
};

struct mlx5_ib_create_ah_resp {
	uint32_t response_length;
	uint8_t dmac[6];
	uint8_t reserved[6];
};

enum {
	MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_COMP = 1 << 0,
	MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_PAD = 1 << 1,
};

/* Later releases of rdma-core have more members behind these. */
struct mlx5_ib_query_device_resp {
	uint32_t comp_mask;
	uint32_t response_length;
	struct {
		uint32_t max_tso;
		uint32_t supported_qpts;
	} tso_caps;
	uint8_t rss_caps[16];
	struct {
		uint32_t max_num;
		uint32_t supported_format;
	} cqe_comp_caps;
	uint8_t packet_pacing_caps[16];
	uint32_t mlx5_ib_support_multi_pkt_send_wqes;
	uint32_t flags;
};

enum {
	MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD = 1 << 0,
	MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX = 1 << 1,
	MLX5_IB_CREATE_CQ_FLAGS_REAL_TIME_TS = 1 << 2,
};

struct mlx5_ib_create_cq {
	uint64_t buf_addr;
	uint64_t db_addr;
	uint32_t cqe_size;
	uint8_t cqe_comp_en;
	uint8_t cqe_comp_res_format;
	uint16_t flags;
	uint16_t uar_page_index;
	uint16_t reserved0;
	uint32_t reserved1;
};

struct mlx5_ib_create_cq_resp {
	uint32_t cqn;
	uint32_t reserved;
};

enum {
	MLX5_QP_FLAG_SIGNATURE = 1 << 0,
	MLX5_QP_FLAG_SCATTER_CQE = 1 << 1,
	MLX5_QP_FLAG_TUNNEL_OFFLOADS = 1 << 2,
	MLX5_QP_FLAG_BFREG_INDEX = 1 << 3,
	MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_UC = 1 << 6,
	MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_MC = 1 << 7,
	MLX5_QP_FLAG_ALLOW_SCATTER_CQE = 1 << 8,
	MLX5_QP_FLAG_PACKET_BASED_CREDIT_MODE = 1 << 9,
	MLX5_QP_FLAG_UAR_PAGE_INDEX = 1 << 10,
};

struct mlx5_ib_create_qp {
	uint64_t buf_addr;
	uint64_t db_addr;
	uint32_t sq_wqe_count;
	uint32_t rq_wqe_count;
	uint32_t rq_wqe_shift;
	uint32_t flags;
	uint32_t uidx;
	uint32_t bfreg_index;
	uint64_t sq_buf_addr;
	uint32_t ece_options;
	uint8_t dci_streams[2];
	uint16_t reserved;
};

struct mlx5_ib_create_qp_resp {
	uint32_t bfreg_index;
	uint32_t ece_options;
	uint32_t comp_mask;
	uint32_t tirn;
	uint32_t tisn;
	uint32_t rqn;
	uint32_t sqn;
	uint32_t reserved1;
	uint64_t tir_icm_addr;
};

#endif
