/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_open.c: opening and closing a device. It fills in the operations of a context, and so depends on the files
 * that hold them; they depend on verbs_context.c alone. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "verbs_kernel.h"

static void fill(struct verbs_context *v)
{
	v->query_port = verbs_query_port;
	v->query_device_ex = verbs_query_device_ex;
	v->create_counters = verbs_create_counters;
	v->destroy_counters = verbs_destroy_counters;
	v->attach_counters_point_flow = verbs_attach_counters_point_flow;
	v->read_counters = verbs_read_counters;
	v->ibv_create_flow = verbs_create_flow;
	v->ibv_destroy_flow = verbs_destroy_flow;
	v->sz = sizeof(*v);
	v->context.ops.poll_cq = verbs_poll_cq;
	v->context.ops.post_send = verbs_post_send;
	v->context.ops.post_recv = verbs_post_recv;
	v->context.num_comp_vectors = 1;
	v->context.abi_compat = (void *)UINTPTR_MAX;
}

/* The common part of ibv_open_device and mlx5dv_open_device: NULL and errno. */
struct ibv_context *verbs_open(struct ibv_device *device)
{
	struct soft_device *d = (struct soft_device *)device;
	struct soft_context *c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->device = d;
	fill(&c->verbs);
	c->verbs.context.device = device;
	c->verbs.context.cmd_fd = -1;
	pthread_mutex_init(&c->verbs.context.mutex, NULL);
	rdma_link_init(&c->children);
	verbs_table_lock();
	int err = verbs_kernel_open(c);
	d->refs += !err;
	verbs_table_unlock();
	if (!err)
		return &c->verbs.context;
	pthread_mutex_destroy(&c->verbs.context.mutex);
	free(c);
	errno = err;
	return NULL;
}

VERBS_PUBLIC struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	int err = verbs_call(device->name, "ibv_open_device");
	if (!err)
		return verbs_open(device);
	errno = err;
	return NULL;
}

/* The context takes its objects with it, as the kernel does when the descriptor closes: the youngest first. */
VERBS_PUBLIC int ibv_close_device(struct ibv_context *context)
{
	struct soft_context *c = verbs_context_of(context);
	struct soft_device *d = c->device;
	int err = verbs_call(context->device->name, "ibv_close_device");
	if (err) {
		errno = err;
		return -1;
	}
	verbs_table_lock();
	uv_lock();
	verbs_kernel_close(c);
	while (c->children.prev != &c->children)
		verbs_release(RDMA_OUTER(c->children.prev, struct soft_object, link));
	uv_unlock();
	verbs_device_unref(d);
	verbs_table_unlock();
	close(context->async_fd);
	pthread_mutex_destroy(&context->mutex);
	free(c);
	return 0;
}
