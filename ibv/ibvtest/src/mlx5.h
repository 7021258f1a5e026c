/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5.h: the shared declarations of the software libmlx5.so.1.
 *
 * The library offers the part of mlx5's direct verbs that flowtally uses: DevX flow counters
 * (single and in bulk, synchronous or not), matchers and flows. As the real one it makes a few checks of its own
 * (EOPNOTSUPP, e.g. for two destinations of a flow), and hands the rest to the kernel, here the uverbs kernel in
 * software that libibverbs.so.1 has. mlx5_prm.h describes the firmware behind it.
 */
#ifndef IBVTEST_MLX5_H
#define IBVTEST_MLX5_H

#include <stddef.h>
#include <stdint.h>

#include "provider.h"
#include "uverbs/mlx5_abi_flow.h"

#define MLX5_PUBLIC PROVIDER_PUBLIC

/* <infiniband/mlx5dv.h>; its enums are uint32_t here. */

enum { MLX5DV_CONTEXT_FLAGS_DEVX = 1 };

struct mlx5dv_context_attr {
	uint32_t flags;
	uint64_t comp_mask;
};

struct mlx5dv_flow_match_parameters {
	size_t match_sz;
	uint64_t match_buf[];
};

enum { MLX5DV_FLOW_MATCHER_MASK_FT_TYPE = 1, MLX5DV_FLOW_TABLE_TYPE_NIC_RX = 0, MLX5DV_FLOW_TABLE_TYPE_NIC_TX = 1 };

struct mlx5dv_flow_matcher_attr {
	uint32_t type;
	uint32_t flags;
	uint16_t priority;
	uint8_t match_criteria_enable;
	struct mlx5dv_flow_match_parameters *match_mask;
	uint64_t comp_mask;
	uint32_t ft_type; /* there only with its bit in comp_mask */
};

enum {
	MLX5DV_FLOW_ACTION_DEST_IBV_QP,
	MLX5DV_FLOW_ACTION_DROP,
	MLX5DV_FLOW_ACTION_IBV_COUNTER,
	MLX5DV_FLOW_ACTION_IBV_FLOW_ACTION,
	MLX5DV_FLOW_ACTION_TAG,
	MLX5DV_FLOW_ACTION_DEST_DEVX,
	MLX5DV_FLOW_ACTION_COUNTERS_DEVX,
	MLX5DV_FLOW_ACTION_DEFAULT_MISS,
	MLX5DV_FLOW_ACTION_COUNTERS_DEVX_WITH_OFFSET,
};

struct mlx5dv_devx_obj;

struct mlx5dv_devx_cmd_comp {
	int fd;
};

struct mlx5dv_devx_async_cmd_hdr {
	uint64_t wr_id;
	uint8_t out_data[];
};

/* Of rdma-core 60 on; older programs hand over elements without offset, 16 bytes each. */
struct mlx5dv_flow_action_attr {
	uint32_t type;
	union {
		struct ibv_qp *qp;
		uint32_t tag_value;
		struct mlx5dv_devx_obj *obj;
		struct {
			struct mlx5dv_devx_obj *obj;
			uint32_t offset;
		} bulk_obj;
	};
};

/* A completion queue in memory. cq_uar is NULL: there is no register to arm it by. */
struct mlx5dv_cq {
	void *buf;
	uint32_t *dbrec; /* big endian; [0]: the consumer index */
	uint32_t cqe_cnt, cqe_size;
	void *cq_uar;
	uint32_t cqn;
	uint64_t comp_mask;
};

enum { MLX5DV_OBJ_CQ = 1 << 1 };

struct mlx5dv_obj {
	struct {
		void *in, *out;
	} qp;
	struct {
		struct ibv_cq *in;
		struct mlx5dv_cq *out;
	} cq;
	struct {
		void *in, *out;
	} srq, rwq, dm, ah, pd, devx;
};

/* The structs behind the public names. */

struct mlx5dv_devx_obj {
	struct ibv_context *context;
	uint64_t handle;
};

struct mlx5dv_flow_matcher {
	struct ibv_context *context;
	uint64_t handle;
};

/* mlx5_devx.c: the start of every verb, a call of the kernel, and a call whose only attribute is an object. All return 0
 * or an errno. */
int mlx5_enter(struct ibv_context *context, const char *symbol);
int mlx5_call(struct ibv_context *context, struct kernel_call *call);
int mlx5_destroy(struct ibv_context *context, uint16_t object, uint16_t method, uint16_t id, uint64_t handle);
/* The end of a verb that makes an object: NULL and errno, and object is freed, or object. */
void *mlx5_made(void *object, int err);

#endif
