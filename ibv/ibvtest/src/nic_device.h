/* SPDX-License-Identifier: Apache-2.0
 *
 * nic_device.h: the interface of ibvtest's libibverbs.so.1 for ibvtest's libmlx5.so.1 and
 * libefa.so.1.
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

#include <errno.h>
#include <string.h>

#include "kernel_call.h"
#include "verbs_abi.h"

#define IBVTEST_DEVICE_OPS_ABI 6

/* A completion queue as it lies in memory. */
struct ibvtest_ring {
	void *buffer;
	uint32_t *doorbell;
	uint32_t entries, number;
};

/* A word of a completion counter: for the kernel, and for reading. length 0: the library's own. */
struct ibvtest_word {
	struct ib_uverbs_buffer_desc buffer;
	const uint64_t *at;
};

/* All return 0 or a positive errno. Functions that return a pointer return NULL and set errno. */
struct ibvtest_device_ops {
	uint32_t abi; /* IBVTEST_DEVICE_OPS_ABI */

	/* Does the device offer DevX and mlx5dv flows? Not with WITHOUT=devx. */
	int (*offers_devx)(struct ibv_device *device);

	/* A context like ibv_open_device's, which may run DevX commands; ibv_close_device closes it.
	 * It includes the call of gate, as mlx5dv_open_device does. */
	struct ibv_context *(*open)(struct ibv_device *device);

	/* gate is called first by every verb of libmlx5, under the verb's symbol name. It counts the call, waits
	 * for the time in FLOWTALLY_IBVTEST_DELAY, and returns the errno of FLOWTALLY_IBVTEST_FAIL, or
	 * EIO once the device is gone. */
	int (*gate)(struct ibv_context *context, const char *symbol);

	/* A call of the uverbs kernel in libibverbs.so.1. */
	int (*call)(struct ibv_context *context, struct kernel_call *call);

	/* The flow that a call makes, without its handle, for ibv_destroy_flow. */
	struct ibv_flow *(*make_flow)(struct ibv_context *context, struct kernel_call *call);

	/* The ring of a queue. From then on its consumer index is the caller's: see
	 * mlx5dv_init_obj(3). 0 or a positive errno. */
	int (*cq_ring)(struct ibv_cq *cq, struct ibvtest_ring *ring);

	/* Does the device offer external memory for completion counters? Not with WITHOUT=efadv
	 * or comp_cntr; NULL in a library without counters. */
	int (*offers_external)(struct ibv_device *device);

	/* ibv_create_comp_cntr, with two words, of completions and of errors; the call is counted as verb. NULL and errno. */
	struct ibv_comp_cntr *(*create_comp_cntr)(struct ibv_context *context, const char *verb,
						  const struct ibv_comp_cntr_init_attr *attr, const struct ibvtest_word *words);
};

/* Exported by libibverbs.so.1, version IBVTEST_PRIVATE_1; NULL for a device not its own. */
const struct ibvtest_device_ops *ibvtest_device_ops(const struct ibv_device *device);

#endif
