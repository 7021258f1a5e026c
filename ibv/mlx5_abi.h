/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_abi.h: the part of libmlx5's direct verbs that this package uses, as verbs_abi.h is for
 * libibverbs. Names and layouts come from <infiniband/mlx5dv.h>. Enums are uint32_t here. */
#ifndef FLOWTALLY_MLX5_ABI_H
#define FLOWTALLY_MLX5_ABI_H

#include "internal/abi/verbs_abi.h"

#define MLX5DV_CONTEXT_FLAGS_DEVX 1

struct mlx5dv_context_attr {
	uint32_t flags;
	uint64_t comp_mask;
};

struct mlx5dv_devx_obj;
struct mlx5dv_flow_matcher;

struct mlx5dv_devx_cmd_comp {
	int fd;
};

struct mlx5dv_devx_async_cmd_hdr {
	uint64_t wr_id;
	uint8_t out_data[];
};

struct mlx5dv_flow_match_parameters {
	size_t match_sz;
	uint64_t match_buf[];
};

struct mlx5dv_flow_matcher_attr {
	uint32_t type;
	uint32_t flags;
	uint16_t priority;
	uint8_t match_criteria_enable;
	struct mlx5dv_flow_match_parameters *match_mask;
	uint64_t comp_mask;
	uint32_t ft_type; /* read with a bit of comp_mask alone, so later members may lack */
};

#define MLX5DV_FLOW_ACTION_DROP 1
#define MLX5DV_FLOW_ACTION_COUNTERS_DEVX 6
#define MLX5DV_FLOW_ACTION_DEFAULT_MISS 7
#define MLX5DV_FLOW_ACTION_COUNTERS_DEVX_WITH_OFFSET 8 /* rdma-core 60 */

/* The action of headers before rdma-core 60. */
struct mlx5dv_flow_action_attr {
	uint32_t type;
	union {
		struct mlx5dv_devx_obj *obj;
	};
};

/* The larger struct that has the same name since rdma-core 60. The caller of __mlx5dv_create_flow
 * passes the size of its elements. mlx5dv_create_flow has no such argument: it steps by the
 * smaller struct up to 59, by the larger one in 60.0, 60.1, 61.0 and 62.0, and by the smaller one
 * again in every later release. */
struct ft_flow_action_attr_60 {
	uint32_t type;
	union {
		struct mlx5dv_devx_obj *obj;
		struct {
			struct mlx5dv_devx_obj *obj;
			uint32_t offset;
		} bulk_obj;
	};
};

#define MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE 1
#define MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE 4

/* Of <infiniband/verbs.h>. */
struct ibv_cq_init_attr_ex {
	uint32_t cqe;
	void *cq_context;
	struct ibv_comp_channel *channel;
	uint32_t comp_vector;
	uint64_t wc_flags;
	uint32_t comp_mask;
	uint32_t flags;
	struct ibv_pd *parent_domain; /* read with a bit of comp_mask alone */
};

struct mlx5dv_cq_init_attr {
	uint64_t comp_mask;
	uint8_t cqe_comp_res_format;
	uint32_t flags;
	uint16_t cqe_size;
};

#define MLX5DV_OBJ_CQ 2
#define MLX5DV_OBJ_AH 32
#define MLX5DV_OBJ_PD 64

/* Memory of the caller in which firmware puts queues. */
struct mlx5dv_devx_umem {
	uint32_t umem_id;
};

/* A page with a doorbell register. */
struct mlx5dv_devx_uar {
	void *reg_addr;
	void *base_addr;
	uint32_t page_id;
	long mmap_off;
	uint64_t comp_mask;
};

struct mlx5dv_pd {
	uint32_t pdn;
	uint64_t comp_mask;
};

/* The path of an address handle, as a datagram's request has it. */
struct mlx5_wqe_av {
	uint64_t key;
	uint32_t dqp_dct;
	uint8_t stat_rate_sl;
	uint8_t fl_mlid;
	uint16_t rlid;
	uint8_t reserved0[4];
	uint8_t rmac[6];
	uint8_t tclass;
	uint8_t hop_limit;
	uint32_t grh_gid_fl;
	uint8_t rgid[16];
};

struct mlx5dv_ah {
	struct mlx5_wqe_av *av;
	uint64_t comp_mask;
};

/* A ring of completion queue entries, and the doorbell record, where the consumer writes the
 * number of entries it has taken. */
struct mlx5dv_cq {
	void *buf;
	uint32_t *dbrec; /* big endian */
	uint32_t cqe_cnt;
	uint32_t cqe_size;
	void *cq_uar;
	uint32_t cqn;
	uint64_t comp_mask;
};

/* The argument of mlx5dv_init_obj. The call reads the members that its mask names. The library's
 * struct has more members behind these. */
struct mlx5dv_obj {
	struct {
		struct ibv_qp *in;
		void *out;
	} qp;
	struct {
		struct ibv_cq *in;
		struct mlx5dv_cq *out;
	} cq;
	struct {
		void *in, *out;
	} srq, rwq, dm;
	struct {
		struct ibv_ah *in;
		struct mlx5dv_ah *out;
	} ah;
	struct {
		struct ibv_pd *in;
		struct mlx5dv_pd *out;
	} pd;
};

#endif
