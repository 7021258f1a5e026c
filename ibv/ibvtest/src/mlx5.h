/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5.h: the shared declarations of the software libmlx5.so.1.
 *
 * The library offers the part of mlx5's direct verbs that flowtally uses: DevX flow counters
 * (single and in bulk, synchronous or not), matchers and flows. It returns the results of
 * rdma-core 65, a kernel with mlx5_ib and a ConnectX's firmware together. If several of them
 * would refuse a call, it imitates the first:
 *
 *   - libmlx5 itself: EOPNOTSUPP, e.g. for two destinations of a flow;
 *   - mlx5_ib: EINVAL, ENOMEM (sic) for a priority above 15, EPERM without CAP_NET_RAW;
 *   - firmware: a command that it refuses fails with EREMOTEIO, its status and syndrome
 *     in the command's output. Ours says in the syndrome at which bit of the input
 *     (MLX5_SYNDROME_BIT + n) or of the lengths (MLX5_SYNDROME_LENGTH) it stopped; a real
 *     syndrome is a number that only its vendor can read. Firmware is strict: a reserved
 *     bit that is set is refused.
 */
#ifndef IBVTEST_MLX5_H
#define IBVTEST_MLX5_H

#include <stddef.h>
#include <stdint.h>

#include "mlx5_prm.h"
#include "provider.h"

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
	struct mlx5_counters *counters;
	unsigned flows;   /* that count in it, atomic */
	unsigned queries; /* that run by themselves; see mlx5_async.c */
};

struct mlx5dv_flow_matcher {
	struct ibv_context *context;
	uint16_t priority;
	uint8_t criteria;
	int egress;
	unsigned flows; /* atomic */
	uint8_t mask[MLX5_MATCH_BYTES];
};

/* mlx5_calls.c: the way into libibverbs, and the record of calls. */
const struct ibvtest_device_ops *mlx5_ops(const struct ibv_device *device); /* NULL: not an mlx5 device */
int mlx5_enter(struct ibv_context *context, const char *symbol);            /* counts, then gate */
int mlx5_command(struct ibv_context *context, unsigned opcode, const char *name);
void mlx5_called(const char *symbol);
void *mlx5_no_object(int err); /* NULL and errno */

/* mlx5_command.c: the check of the lengths of a command by uverbs, and the commands. They return EREMOTEIO beside
 * firmware's status in out. */
int mlx5_uverbs(struct ibv_context *context, size_t inlen, size_t outlen);
int mlx5_new_counters(struct ibv_context *context, const uint8_t *in, size_t inlen, void *out, size_t outlen,
		      struct mlx5dv_devx_obj **made);

/* QUERY_FLOW_COUNTER of obj in two steps. uverbs refuses in the first step, before
 * the query starts. Firmware's result comes in the second, which may run on another thread. */
int mlx5_query_admit(struct mlx5dv_devx_obj *obj, const uint8_t *in, size_t inlen, size_t outlen);
int mlx5_query_run(struct mlx5dv_devx_obj *obj, const uint8_t *in, size_t inlen, void *out, size_t outlen);

/* mlx5_async.c: returns when no query of obj runs by itself any more. */
void mlx5_async_drain(struct mlx5dv_devx_obj *obj);

#endif
