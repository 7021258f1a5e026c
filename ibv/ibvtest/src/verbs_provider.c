/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_provider.c: the functions of nic_device.h for libmlx5.so.1 and libefa.so.1. */
#include <errno.h>
#include <stdlib.h>

#include "nic_device.h"
#include "verbs_data.h"

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
		verbs_context_of(context)->devx = true;
	return context;
}

static int is_devx(struct ibv_context *context)
{
	return verbs_context_of(context)->devx;
}

static int gate(struct ibv_context *context, const char *symbol)
{
	return verbs_gate(context, symbol);
}

static int counters_copy(struct ibv_context *context, struct nic_counter *from, struct nic_counter *to, unsigned n, int clear)
{
	int err = verbs_enter(context);
	if (err)
		return err;
	struct nic *nic = verbs_nic(context, &err);
	if (nic) {
		err = nic_counters_copy(nic, from, to, n, clear);
		verbs_note_drops(verbs_context_of(context)->device);
	}
	verbs_leave(context);
	return err;
}

static struct ibv_flow *create_flow(struct ibv_context *context, const struct nic_rule_attr *attr,
				    void (*release)(void *arg), void *arg)
{
	int err = verbs_enter(context);
	if (err)
		return verbs_made(NULL, err);
	struct soft_flow *f = NULL;
	struct nic *nic = NULL;
	if (!verbs_net_raw())
		err = EPERM;
	else
		nic = verbs_nic(context, &err);
	if (nic && !(f = verbs_new_flow(context)))
		err = ENOMEM;
	if (f)
		err = nic_rule_add(nic, attr, &f->rule);
	if (!err) {
		f->end = release;
		f->arg = arg;
		verbs_adopt(context, &f->object, verbs_release_flow);
	} else {
		free(f);
	}
	verbs_leave(context);
	return verbs_made(f, err);
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

static const struct ibvtest_data_ops data_ops = {
	.cq_ring = cq_ring,
#if IBVTEST_RDMA_CORE >= 65
	.offers_external = offers_external,
	.create_comp_cntr = verbs_create_comp_cntr,
#endif
};

VERBS_PUBLIC const struct ibvtest_device_ops *ibvtest_device_ops(const struct ibv_device *device)
{
	static const struct ibvtest_device_ops ops = {
		.abi = IBVTEST_DEVICE_OPS_ABI,
		.offers_devx = offers_devx,
		.open = open_devx,
		.is_devx = is_devx,
		.gate = gate,
		.counters_copy = counters_copy,
		.create_flow = create_flow,
		.data = &data_ops,
	};
	return device && device->_ops._dummy1 == (void *)ibvtest_device_ops ? &ops : NULL;
}
