/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_counters.c: counters of flows, as libmlx5 has them: the points that are attached to an object lie here until the
 * first flow that names the object hands their description to the kernel. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verbs_counters.h"
#include "verbs_kernel.h"

/* Protects the points of every object and its flows; outside the kernel's lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void verbs_counters_lock(void)
{
	pthread_mutex_lock(&lock);
}

void verbs_counters_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

static void release_counters(void *object)
{
	free(((struct soft_counters *)object)->points);
}

struct ibv_counters *verbs_create_counters(struct ibv_context *context, struct ibv_counters_init_attr *attr)
{
	struct kernel_call call = KERNEL_CALL(UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_CREATE);
	uint64_t *handle = kernel_object(&call, UVERBS_ATTR_CREATE_COUNTERS_HANDLE, 0);
	int err = verbs_gate(context, "ibv_create_counters");
	if (!err && attr->comp_mask)
		err = EOPNOTSUPP;
	struct soft_counters *c = verbs_make(context, verbs_new(sizeof(*c)), err, &call, release_counters);
	if (!c)
		return NULL;
	c->counters.context = context;
	c->handle = *handle;
	return &c->counters;
}

int verbs_destroy_counters(struct ibv_counters *counters)
{
	return verbs_destroy(counters->context, "ibv_destroy_counters", counters, UVERBS_OBJECT_COUNTERS,
			     UVERBS_METHOD_COUNTERS_DESTROY, UVERBS_ATTR_DESTROY_COUNTERS_HANDLE,
			     ((struct soft_counters *)counters)->handle);
}

static int attach(struct soft_counters *c, const struct ibv_counter_attach_attr *a)
{
	if (a->comp_mask)
		return EOPNOTSUPP;
	if (a->counter_desc != IBV_COUNTER_PACKETS && a->counter_desc != IBV_COUNTER_BYTES)
		return ENOTSUP;
	if (c->flows)
		return EBUSY;
	struct mlx5_ib_flow_counters_desc *points = realloc(c->points, (c->n + 1) * sizeof(*points));
	if (!points)
		return ENOMEM;
	c->points = points;
	c->points[c->n++] = (struct mlx5_ib_flow_counters_desc){a->counter_desc, a->index};
	return 0;
}

/* Static attach only: a flow that exists cannot be attached to (ENOTSUP). */
int verbs_attach_counters_point_flow(struct ibv_counters *counters, struct ibv_counter_attach_attr *attr,
				     struct ibv_flow *flow)
{
	int err = verbs_gate(counters->context, "ibv_attach_counters_point_flow");
	if (err)
		return err;
	verbs_counters_lock();
	err = flow ? ENOTSUP : attach((struct soft_counters *)counters, attr);
	verbs_counters_unlock();
	return err;
}

int verbs_read_counters(struct ibv_counters *counters, uint64_t *values, uint32_t n, uint32_t flags)
{
	struct kernel_call call = KERNEL_CALL(UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_READ);
	int err = verbs_gate(counters->context, "ibv_read_counters");
	if (err)
		return err;
	kernel_object(&call, UVERBS_ATTR_READ_COUNTERS_HANDLE, ((struct soft_counters *)counters)->handle);
	kernel_out(&call, UVERBS_ATTR_READ_COUNTERS_BUFF, values, n * sizeof(*values));
	kernel_in(&call, UVERBS_ATTR_READ_COUNTERS_FLAGS, &flags, sizeof(flags));
	return verbs_kernel_call(counters->context, &call);
}
