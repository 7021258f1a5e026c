/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_flow.c: ibv_create_flow as libibverbs and libmlx5 make it: the specs in the form of the kernel, the handle of
 * the counters, and the description of their points with the first flow that names them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verbs_counters.h"
#include "verbs_data.h"
#include "verbs_kernel.h"

enum { SPECS = 10, SPEC_BYTES = 88, IPV4_EXT = 0x32 };

/* The specs of <infiniband/verbs.h>: a type and a size, from at on a filter of values and one of masks. */
static const struct layout {
	uint32_t type, kernel_type;
	uint16_t size, at, filter;
} layouts[] = {
	{IB_FLOW_SPEC_ETH, IB_FLOW_SPEC_ETH, 40, 6, 16},
	{IB_FLOW_SPEC_IPV4, IB_FLOW_SPEC_IPV4, 24, 8, 8},
	{IPV4_EXT, IB_FLOW_SPEC_IPV4, 32, 8, 12},
	{IB_FLOW_SPEC_IPV6, IB_FLOW_SPEC_IPV6, 88, 8, 40},
	{IB_FLOW_SPEC_ESP, IB_FLOW_SPEC_ESP, 24, 8, 8},
	{IB_FLOW_SPEC_TCP, IB_FLOW_SPEC_TCP, 16, 6, 4},
	{IB_FLOW_SPEC_UDP, IB_FLOW_SPEC_UDP, 16, 6, 4},
	{IB_FLOW_SPEC_VXLAN_TUNNEL, IB_FLOW_SPEC_VXLAN_TUNNEL, 16, 8, 4},
	{IB_FLOW_SPEC_GRE, IB_FLOW_SPEC_GRE, 24, 8, 8},
	{IB_FLOW_SPEC_MPLS, IB_FLOW_SPEC_MPLS, 16, 8, 4},
	{IB_FLOW_SPEC_ACTION_TAG, IB_FLOW_SPEC_ACTION_TAG, 12, 8, 0},
	{IB_FLOW_SPEC_ACTION_DROP, IB_FLOW_SPEC_ACTION_DROP, 8, 8, 0},
	{IB_FLOW_SPEC_ACTION_HANDLE, IB_FLOW_SPEC_ACTION_HANDLE, 16, 8, 0},
	{IB_FLOW_SPEC_ACTION_COUNT, IB_FLOW_SPEC_ACTION_COUNT, 16, 8, 0},
};

/* The command EX_CREATE_FLOW, and the part of it for mlx5_ib. */
struct command {
	struct ib_uverbs_create_flow c;
	uint8_t specs[SPECS * SPEC_BYTES];
	struct {
		struct mlx5_ib_create_flow c;
		struct mlx5_ib_flow_counters_data data;
	} driver;
	struct soft_counters *counters;
};

static const struct layout *layout_of(uint32_t type)
{
	uint32_t inner = type < IB_FLOW_SPEC_ACTION_TAG ? IB_FLOW_SPEC_INNER : 0; /* actions have no inner form */
	for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
		if (layouts[i].type == (type & ~inner))
			return &layouts[i];
	return NULL;
}

/* Appends one spec in the kernel's form. The kernel knows no handle 0. */
static int convert(struct command *k, const uint8_t *spec, uint32_t type, const struct layout *l)
{
	struct ib_uverbs_flow_spec_action a = {.hdr = {type & IB_FLOW_SPEC_INNER ? l->kernel_type | IB_FLOW_SPEC_INNER : l->kernel_type,
						       sizeof(a), 0}};
	uint8_t *to = k->specs + k->c.flow_attr.size;
	if (type == IB_FLOW_SPEC_ACTION_TAG)
		memcpy(&a.value, spec + l->at, sizeof(a.value));
	if (type == IB_FLOW_SPEC_ACTION_COUNT) {
		if (k->counters)
			return EINVAL; /* libmlx5's: one object for a flow */
		memcpy(&k->counters, spec + l->at, sizeof(k->counters));
		if (!k->counters)
			return EINVAL;
		a.value = k->counters->handle;
	}
	if (type < IB_FLOW_SPEC_ACTION_TAG || type == IB_FLOW_SPEC_ACTION_DROP)
		a.hdr.size = sizeof(a.hdr) + 2 * l->filter;
	memcpy(to, &a, type < IB_FLOW_SPEC_ACTION_TAG ? sizeof(a.hdr) : a.hdr.size);
	memcpy(to + sizeof(a.hdr), spec + l->at, 2 * l->filter);
	k->c.flow_attr.size += a.hdr.size;
	return 0;
}

static int convert_all(struct command *k, const struct ibv_flow_attr *attr)
{
	const uint8_t *at = (const uint8_t *)(attr + 1);
	if (attr->num_of_specs > SPECS || attr->size < sizeof(*attr))
		return EINVAL;
	size_t left = attr->size - sizeof(*attr);
	for (unsigned i = 0; i < attr->num_of_specs; i++) {
		uint32_t type;
		uint16_t size;
		if (left < sizeof(type) + sizeof(size))
			return EINVAL;
		memcpy(&type, at, sizeof(type));
		memcpy(&size, at + sizeof(type), sizeof(size));
		const struct layout *l = layout_of(type);
		int err = l && size == l->size && left >= size ? convert(k, at, type, l) : EINVAL;
		if (err)
			return err;
		at += size;
		left -= size;
	}
	return left ? EINVAL : 0;
}

struct ibv_flow *verbs_make_flow(struct ibv_context *context, struct kernel_call *call)
{
	struct ibv_flow *f = verbs_make(context, verbs_new(sizeof(struct soft_flow)), 0, call, NULL);
	if (f)
		f->context = context;
	return f;
}

static struct ibv_flow *create(struct ibv_context *context, struct command *k)
{
	struct kernel_call call = KERNEL_COMMAND;
	struct ib_uverbs_create_flow_resp resp = {0};
	struct soft_counters *c = k->counters;
	kernel_command(&call, IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_CREATE_FLOW, &k->c,
		       sizeof(k->c) + k->c.flow_attr.size, &resp, sizeof(resp));
	if (c && !c->flows) {
		k->driver.c.ncounters_data = 1;
		k->driver.data = (struct mlx5_ib_flow_counters_data){.counters_data = (uintptr_t)c->points, .ncounters = c->n};
		kernel_in(&call, UVERBS_ATTR_UHW_IN, &k->driver, sizeof(k->driver));
	}
	struct ibv_flow *flow = verbs_make_flow(context, &call);
	if (flow) {
		flow->handle = resp.flow_handle;
		((struct soft_flow *)flow)->counters = c;
	}
	if (flow && c)
		c->flows++;
	return flow;
}

struct ibv_flow *verbs_create_flow(struct ibv_qp *qp, struct ibv_flow_attr *attr)
{
	struct command k = {.c = {.qp_handle = qp->handle,
				  .flow_attr = {.type = attr->type, .priority = attr->priority, .num_of_specs = attr->num_of_specs,
						.port = attr->port, .flags = attr->flags}}};
	int err = verbs_gate(qp->context, "ibv_create_flow");
	if (!err)
		err = convert_all(&k, attr);
	if (!err && k.counters && (k.counters->counters.context != qp->context || !k.counters->n))
		err = EINVAL; /* another device's, or nothing was attached */
	if (err)
		return verbs_made(NULL, err);
	verbs_counters_lock();
	struct ibv_flow *flow = create(qp->context, &k);
	verbs_counters_unlock();
	return flow;
}

int verbs_destroy_flow(struct ibv_flow *flow)
{
	struct soft_counters *c = ((struct soft_flow *)flow)->counters;
	int err = verbs_destroy(flow->context, "ibv_destroy_flow", flow, UVERBS_OBJECT_FLOW, UVERBS_METHOD_FLOW_DESTROY,
				UVERBS_ATTR_DESTROY_FLOW_HANDLE, flow->handle);
	verbs_counters_lock();
	if (!err && c)
		c->flows--;
	verbs_counters_unlock();
	return err;
}
