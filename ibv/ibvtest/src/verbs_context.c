/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_context.c: the start and the end of every verb, and the objects of a context. */
#include <errno.h>
#include <stdlib.h>

#include "verbs_kernel.h"

int verbs_begin(struct ibv_context *context, const char *verb)
{
	int err = verbs_call(context->device->name, verb);
	if (err)
		return err;
	uv_lock();
	if (!uv_lost(verbs_context_of(context)->file))
		return 0;
	uv_unlock();
	return EIO;
}

int verbs_gate(struct ibv_context *context, const char *verb)
{
	int err = verbs_begin(context, verb);
	if (!err)
		uv_unlock();
	return err;
}

void verbs_release(struct soft_object *o)
{
	rdma_link_remove(&o->link);
	if (o->release)
		o->release(o + 1);
	free(o);
}

void verbs_drop(void *object)
{
	uv_lock();
	verbs_release((struct soft_object *)object - 1);
	uv_unlock();
}

void *verbs_made(void *object, int err)
{
	if (!err)
		return object;
	errno = err;
	return NULL;
}

void *verbs_new(size_t size)
{
	struct soft_object *o = calloc(1, sizeof(*o) + size);
	if (!o)
		return NULL;
	rdma_link_init(&o->link);
	return o + 1;
}

void *verbs_make(struct ibv_context *context, void *object, int err, struct kernel_call *call, void (*release)(void *))
{
	if (!err)
		err = object ? verbs_kernel_call(context, call) : ENOMEM;
	if (!object)
		return verbs_made(NULL, err);
	struct soft_object *o = (struct soft_object *)object - 1;
	uv_lock();
	o->release = release;
	if (err)
		verbs_release(o);
	else
		rdma_link_append(&verbs_context_of(context)->children, &o->link);
	uv_unlock();
	return verbs_made(object, err);
}

int verbs_destroy(struct ibv_context *context, const char *verb, void *object, uint16_t type, uint16_t method, uint16_t id,
		  uint64_t handle)
{
	struct kernel_call call = KERNEL_CALL(type, method);
	int err = verbs_gate(context, verb);
	kernel_object(&call, id, handle);
	if (!err)
		err = verbs_kernel_call(context, &call);
	if (!err)
		verbs_drop(object);
	return err;
}
