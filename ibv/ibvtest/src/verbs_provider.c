/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_provider.c: the functions of nic_device.h for libmlx5.so.1 and libefa.so.1. */
#include <errno.h>
#include <stdlib.h>

#include "verbs_data.h"
#include "verbs_kernel.h"

static int offers_devx(struct ibv_device *device)
{
	return !verbs_without(device->name, "devx");
}

/* The verb has no context yet, so its call is counted here. */
static struct ibv_context *open_devx(struct ibv_device *device)
{
	int err = verbs_call(device->name, "mlx5dv_open_device");
	if (!err && !offers_devx(device))
		err = EOPNOTSUPP;
	if (err)
		return verbs_made(NULL, err);
	struct ibv_context *context = verbs_open(device);
	if (context)
		verbs_kernel_devx(verbs_context_of(context));
	return context;
}

static int cq_ring(struct ibv_cq *cq, struct ibvtest_ring *ring)
{
	return verbs_without(cq->context->device->name, "cq_ring") ? EOPNOTSUPP : verbs_cq_ring(cq, ring);
}

#if IBVTEST_RDMA_CORE >= 65
static int offers_external(struct ibv_device *device)
{
	return !verbs_without(device->name, "efadv") && !verbs_without(device->name, "comp_cntr");
}
#endif

VERBS_PUBLIC const struct ibvtest_device_ops *ibvtest_device_ops(const struct ibv_device *device)
{
	static const struct ibvtest_device_ops ops = {
		.abi = IBVTEST_DEVICE_OPS_ABI,
		.offers_devx = offers_devx,
		.open = open_devx,
		.gate = verbs_gate,
		.call = verbs_kernel_call,
		.make_flow = verbs_make_flow,
		.cq_ring = cq_ring,
#if IBVTEST_RDMA_CORE >= 65
		.offers_external = offers_external,
		.create_comp_cntr = verbs_create_comp_cntr,
#endif
	};
	return device && device->_ops._dummy1 == (void *)ibvtest_device_ops ? &ops : NULL;
}
