/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_context.c: the start and the end of every verb, and the objects of a context. */
#include <errno.h>

#include "verbs_soft.h"

int verbs_enter(struct ibv_context *context)
{
	uv_lock();
	if (!uv_lost(verbs_context_of(context)->file))
		return 0;
	uv_unlock();
	return EIO;
}

int verbs_begin(struct ibv_context *context, const char *verb)
{
	int err = verbs_call(context->device->name, verb);
	return err ? err : verbs_enter(context);
}

int verbs_gate(struct ibv_context *context, const char *verb)
{
	int err = verbs_begin(context, verb);
	if (!err)
		uv_unlock();
	return err;
}

void verbs_adopt(struct ibv_context *context, struct soft_object *object, void (*release)(struct soft_object *))
{
	object->release = release;
	rdma_link_append(&verbs_context_of(context)->children, &object->link);
}

void verbs_keep(struct ibv_context *context, struct soft_object *object, void (*release)(struct soft_object *))
{
	uv_lock();
	verbs_adopt(context, object, release);
	uv_unlock();
}

void verbs_release(struct soft_object *object)
{
	rdma_link_remove(&object->link);
	object->release(object);
}

void verbs_drop(struct soft_object *object)
{
	uv_lock();
	verbs_release(object);
	uv_unlock();
}

void *verbs_made(void *object, int err)
{
	if (!err)
		return object;
	errno = err;
	return NULL;
}

int verbs_destroy(struct ibv_context *context, const char *verb, struct soft_object *o)
{
	int err = verbs_begin(context, verb);
	if (err)
		return err;
	if (o->users)
		err = EBUSY;
	else
		verbs_release(o);
	uv_unlock();
	return err;
}
