/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_ib_flow.h: the declarations that flows, counters and DevX of the mlx5 driver share. */
#ifndef MLX5_IB_FLOW_H
#define MLX5_IB_FLOW_H

#include "../mlx5_prm.h"
#include "mlx5_abi_flow.h"
#include "mlx5_ib.h"

enum { MLX5_IB_FLOW_LAST_PRIO = 15 };

/* mlx5_ib_spec.c */

/* mlx5_flow_spec is a flow's specs as mlx5_ib gives them to mlx5_core. */
struct mlx5_flow_spec {
	uint8_t mask[MLX5_MATCH_BYTES], value[MLX5_MATCH_BYTES]; /* struct fte_match_param */
	bool drop, tagged, multicast_only;
	unsigned counts; /* COUNT specs: counters has one pointer for each */
	struct uv_counters *counters[10];
};

/* mlx5_ib_convert_specs is the part of uverbs: sizes, and the handles of counters. */
int mlx5_ib_convert_specs(struct uv_file *file, const struct ib_uverbs_flow_attr *attr, const uint8_t *specs,
			  struct mlx5_flow_spec *spec);
/* mlx5_ib_parse_specs fills mask and value. The specs are converted. */
int mlx5_ib_parse_specs(const struct ib_uverbs_flow_attr *attr, const uint8_t *specs, struct mlx5_flow_spec *spec);

/* mlx5_ib_counters.c */
struct mlx5_ib_mcounters {
	struct uv_counters ibcntrs; /* uses: flows with a COUNT of it */
	struct nic_counter hw;      /* has the values of all flows since the object was made */
	struct mlx5_ib_flow_counters_desc *desc;
	uint32_t ncounters, max_index; /* max_index 0: not bound */
	uint64_t cached[2];            /* the values of the last read from the hardware, with the mutant read_cache */
	bool readable;                 /* it was bound once: before that the kernel has no function to read it */
};

/* The operations of struct uv_device_ops. */
int mlx5_ib_create_counters(struct uv_counters *counters, struct uv_call *call);
int mlx5_ib_destroy_counters(struct uv_counters *counters, struct uv_call *call);
int mlx5_ib_read_counters(struct uv_counters *counters, uint64_t *values, unsigned n, uint64_t flags);

/* data is NULL when the call has no description of the counters: then they must be bound. */
int mlx5_ib_flow_counters_set_data(struct uv_counters *counters, struct uv_call *call,
				   const struct mlx5_ib_flow_counters_data *data);
/* mlx5_ib_counters_unuse ends the use by a flow. With the last one the description goes. */
void mlx5_ib_counters_unuse(struct uv_counters *counters);

/* mlx5_ib_devx.c */
struct mlx5_devx_obj {
	struct uv_object object; /* uses: flows that count in it, or queue pairs of a completion queue */
	struct mlx5_counters *counters;
	struct mlx5_devx_queue *queue; /* a completion queue or a queue pair, else NULL */
};

/* mlx5_ib_devx_queues.c. A function takes a command and fills all of its output:
 * 0, an errno of the kernel, or EREMOTEIO and the status of firmware. */
struct mlx5_devx_queues {
	bool (*creates)(uint16_t opcode);
	int (*create)(struct uv_call *call, struct mlx5_devx_obj *obj, uint8_t *in, size_t inlen, uint8_t *out, size_t outlen);
	int (*destroy)(struct mlx5_devx_obj *obj);
	int (*query)(struct mlx5_devx_obj *obj, const uint8_t *in, size_t inlen, uint8_t *out, size_t outlen);
};
extern const struct mlx5_devx_queues mlx5_ib_devx_queues __attribute__((weak));
extern const struct uv_method mlx5_ib_devx_queue_methods[];

/* mlx5_ib_has_devx: EINVAL for a context that was not opened for DevX. */
int mlx5_ib_has_devx(const struct uv_call *call);

/* mlx5_ib_fs.c */
struct mlx5_ib_flow {
	struct uv_flow ibflow;
	struct nic_rule *rule; /* NULL: a flow of a type that counts nothing */
	struct uv_counters *counters[10];
	unsigned counts;
	struct uv_object *matcher, *devx; /* of a flow by a matcher */
};

int mlx5_ib_create_flow(struct uv_flow *flow, const struct ib_uverbs_flow_attr *attr, const uint8_t *specs, struct uv_call *call);
int mlx5_ib_destroy_flow(struct uv_flow *flow, struct uv_call *call);

extern const struct uv_method mlx5_ib_devx_methods[], mlx5_ib_flow_methods[];

#endif
