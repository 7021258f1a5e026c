/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_counters.c: flow counters as mlx5 has them. Points are attached first, then
 * flows that name the object bind it; the hardware counter is the object's, so it is
 * zero when the object is made, sums all its flows and outlives each of them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verbs_soft.h"

#define MAX_POINTS (UINT16_MAX / 8)

struct point {
	uint32_t description, index;
};

struct soft_counters {
	struct ibv_counters counters;
	struct soft_object object; /* users: flows that name it */
	struct nic_counter counter;
	struct point *points;
	uint32_t n, length; /* length: the highest index, plus 1; any index can be attached, and too high ones not read */
	bool broken;        /* bound to a flow type that has no counter */
};

static void release_counters(struct soft_object *o)
{
	struct soft_counters *c = RDMA_OUTER(o, struct soft_counters, object);
	free(c->points);
	free(c);
}

struct ibv_counters *verbs_create_counters(struct ibv_context *context, struct ibv_counters_init_attr *attr)
{
	struct soft_counters *c = NULL;
	int err = verbs_begin(context, "ibv_create_counters");
	if (err)
		return verbs_made(NULL, err);
	if (attr->comp_mask || verbs_without(context->device->name, "counters"))
		err = EOPNOTSUPP;
	else if (!(c = calloc(1, sizeof(*c))))
		err = ENOMEM;
	if (c) {
		c->counters.context = context;
		verbs_adopt(context, &c->object, release_counters);
	}
	verbs_leave(context);
	return verbs_made(c, err);
}

/* EBUSY while a flow names it: the man page has the user detach first. */
int verbs_destroy_counters(struct ibv_counters *counters)
{
	struct soft_counters *c = (struct soft_counters *)counters;
	return verbs_destroy(counters->context, "ibv_destroy_counters", &c->object);
}

static int attach(struct soft_counters *c, const struct ibv_counter_attach_attr *a)
{
	if (a->comp_mask)
		return EOPNOTSUPP;
	if (a->counter_desc != IBV_COUNTER_PACKETS && a->counter_desc != IBV_COUNTER_BYTES)
		return ENOTSUP;
	if (c->object.users)
		return EBUSY;
	struct point *points = realloc(c->points, (c->n + 1) * sizeof(*points));
	if (!points)
		return ENOMEM;
	c->points = points;
	c->points[c->n++] = (struct point){a->counter_desc, a->index};
	if (c->length <= a->index)
		c->length = a->index + 1;
	return 0;
}

/* Static attach only: a flow that exists cannot be attached to (ENOTSUP). */
int verbs_attach_counters_point_flow(struct ibv_counters *counters, struct ibv_counter_attach_attr *attr,
				     struct ibv_flow *flow)
{
	struct soft_counters *c = (struct soft_counters *)counters;
	int err = verbs_begin(counters->context, "ibv_attach_counters_point_flow");
	if (err)
		return err;
	err = flow ? ENOTSUP : attach(c, attr);
	verbs_leave(counters->context);
	return err;
}

int verbs_counters_bind(struct soft_counters *c, struct ibv_context *context, bool counts)
{
	if (c->counters.context != context || !c->n || c->n > MAX_POINTS)
		return EINVAL; /* another device's, or nothing was attached, or more than mlx5_ib takes */
	c->object.users++;
	c->broken |= !counts;
	return 0;
}

void verbs_counters_unbind(struct soft_counters *c)
{
	if (!--c->object.users)
		c->broken = false;
}

struct nic_counter *verbs_counters_nic(struct soft_counters *c)
{
	return &c->counter;
}

/* PREFER_CACHED is a hint that mlx5 does not take, and neither does this. A netdev that
 * went takes the device with it. */
int verbs_read_counters(struct ibv_counters *counters, uint64_t *values, uint32_t n, uint32_t flags)
{
	struct soft_counters *c = (struct soft_counters *)counters;
	struct ibv_context *context = counters->context;
	int err = verbs_begin(context, "ibv_read_counters");
	if (err)
		return err;
	struct nic *nic = verbs_context_of(context)->device->nic;
	uint64_t packets = 0, bytes = 0;
	if (flags & ~IBV_READ_COUNTERS_ATTR_PREFER_CACHED || !c->object.users || n < c->length)
		err = EINVAL;
	else if (c->broken)
		err = EFAULT; /* where the kernel calls through a null pointer: a flow type that has no counter */
	else
		err = nic_counter_read(nic, &c->counter, &packets, &bytes);
	verbs_note_drops(verbs_context_of(context)->device);
	if (err == ENODEV) {
		verbs_context_of(context)->device->fatal = true;
		verbs_device_gone(verbs_context_of(context)->device, true);
		err = EIO;
	}
	if (!err) {
		memset(values, 0, n * sizeof(*values));
		for (uint32_t i = 0; i < c->n; i++)
			values[c->points[i].index] +=
				c->points[i].description == IBV_COUNTER_PACKETS ? packets : bytes;
	}
	verbs_leave(context);
	return err;
}
