/* SPDX-License-Identifier: Apache-2.0
 *
 * nic_device.h: the interface of ibvtest's libibverbs.so.1 for ibvtest's libmlx5.so.1.
 *
 * The real libmlx5 is a provider: it uses symbols that libibverbs exports for providers
 * only. Here it is one, ibvtest_device_ops. A process may hold several builds of our
 * libibverbs, so libmlx5 has no NEEDED entry for one of them: libibverbs stores the
 * symbol's address in each device that it makes (ibv_device._ops._dummy1, which
 * rdma-core leaves NULL), and libmlx5 believes the pointer only when dladdr says that it
 * is that symbol. A device of any other library is simply not an mlx5 one.
 */
#ifndef IBVTEST_NIC_DEVICE_H
#define IBVTEST_NIC_DEVICE_H

#include "nic.h"
#include "verbs_abi.h"
#include "verbs_data_ops.h"

#define IBVTEST_DEVICE_OPS_ABI 3

/* All return 0 or a positive errno. Functions that return a pointer return NULL and set errno. */
struct ibvtest_device_ops {
	uint32_t abi; /* IBVTEST_DEVICE_OPS_ABI */

	/* Does the device offer DevX and mlx5dv flows? Not with WITHOUT=devx. */
	int (*offers_devx)(struct ibv_device *device);

	/* A context like ibv_open_device's, which may run DevX commands; ibv_close_device closes it.
	 * It includes the call of gate, as mlx5dv_open_device does. */
	struct ibv_context *(*open)(struct ibv_device *device);

	/* Was the context opened by open? One of ibv_open_device has no DevX: EINVAL. */
	int (*is_devx)(struct ibv_context *context);

	/* gate is called first by every verb of libmlx5, under the verb's symbol name, and before
	 * every firmware command, under its PRM name (QUERY_FLOW_COUNTER). It counts the call, waits
	 * for the time in FLOWTALLY_IBVTEST_DELAY, and returns the errno of FLOWTALLY_IBVTEST_FAIL, or
	 * EIO once the device is gone. */
	int (*gate)(struct ibv_context *context, const char *symbol);

	/* nic_counters_copy, of the context's device. */
	int (*counters_copy)(struct ibv_context *context, struct nic_counter *from, struct nic_counter *to, unsigned n,
			     int clear);

	/* A flow of the context, with its rule in place.
	 * ibv_destroy_flow, or the end of the context, removes the rule and then calls
	 * release(arg), once. On an error release is not called. */
	struct ibv_flow *(*create_flow)(struct ibv_context *context, const struct nic_rule_attr *attr,
					void (*release)(void *arg), void *arg);

	const struct ibvtest_data_ops *data; /* of completions: verbs_data_ops.h */
};

/* Exported by libibverbs.so.1, version IBVTEST_PRIVATE_1; NULL for a device not its own. */
const struct ibvtest_device_ops *ibvtest_device_ops(const struct ibv_device *device);

#endif
