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
	uint32_t id;        /* of the first counter */
	unsigned n, size;   /* counters; the size that offsets are checked against: 0 for a single one */
	unsigned flows;     /* that count in it, atomic */
	int used;           /* a flow ever did, atomic: else all is 0 */
	unsigned queries;   /* that run by themselves; see mlx5_async.c */
	struct nic_counter counter[];
};

enum { MLX5_MATCH_BYTES = 512 };

struct mlx5dv_flow_matcher {
	struct ibv_context *context;
	uint16_t priority;
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

/* mlx5_prm.c: fields of PRM structures, of up to 32 bits, none across two words. */
uint32_t mlx5_get(const uint8_t *prm, unsigned bit, unsigned width);
void mlx5_set(uint8_t *prm, unsigned bit, unsigned width, uint32_t value);

struct mlx5_field {
	uint16_t bit, width;
};

/* mlx5_reserved finds the first bit that is set outside the fields; -1 when none is. */
int mlx5_reserved(const uint8_t *prm, size_t size, const struct mlx5_field *fields, unsigned n);

enum {
	MLX5_STATUS_OK = 0x00,
	MLX5_STATUS_INT_ERR = 0x01,
	MLX5_STATUS_BAD_OP = 0x02,
	MLX5_STATUS_BAD_PARAM = 0x03,
	MLX5_STATUS_BAD_RES_STATE = 0x09,
	MLX5_STATUS_NO_RES = 0x0f,
	MLX5_STATUS_BAD_INPUT_LEN = 0x50,
	MLX5_STATUS_BAD_OUTPUT_LEN = 0x51,

	MLX5_SYNDROME_BIT = 0x1b000000,
	MLX5_SYNDROME_LENGTH = 0x1e000000,

	MLX5_CMD_QUERY_HCA_CAP = 0x100,
	MLX5_CMD_ALLOC_FLOW_COUNTER = 0x939,
	MLX5_CMD_QUERY_FLOW_COUNTER = 0x93b,

	MLX5_COMMAND_OUT = 16, /* bytes of status and syndrome, and of the output behind them */
};

/* mlx5_answer writes a command's status; 0, or EREMOTEIO. */
int mlx5_answer(void *out, size_t outlen, uint8_t status, uint32_t syndrome);

/* mlx5_firmware.c: uverbs' check of the lengths of a command, and the commands. They return EREMOTEIO beside firmware's status
 * in out. */
int mlx5_uverbs(struct ibv_context *context, size_t inlen, size_t outlen);
int mlx5_alloc_flow_counter(struct ibv_context *context, const uint8_t *in, size_t inlen, void *out, size_t outlen,
			    struct mlx5dv_devx_obj **made);
int mlx5_query_hca_cap(struct ibv_context *context, const uint8_t *in, size_t inlen, void *out, size_t outlen);

/* QUERY_FLOW_COUNTER of obj in two steps. uverbs refuses in the first step, before
 * the query starts. Firmware's result comes in the second, which may run on another thread. */
int mlx5_query_admit(struct mlx5dv_devx_obj *obj, const uint8_t *in, size_t inlen, size_t outlen);
int mlx5_query_run(struct mlx5dv_devx_obj *obj, const uint8_t *in, size_t inlen, void *out, size_t outlen);

/* mlx5_async.c: returns when no query of obj runs by itself any more. */
void mlx5_async_drain(struct mlx5dv_devx_obj *obj);

/* mlx5_match.c: struct fte_match_param as a nic_match. EINVAL for a mask that the NIC cannot
 * match: reserved bits, sections that criteria does not name, contradictions. */
int mlx5_match_mask(const uint8_t *mask, uint8_t criteria);
int mlx5_match(const uint8_t *mask, const uint8_t *value, struct nic_match *match);
int mlx5_match_multicast(const uint8_t *mask, const uint8_t *value);

#endif
