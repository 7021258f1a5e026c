/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_context.c: the start and the end of every verb, and the objects of a context. */
#include <errno.h>
#include <pthread.h>

#include "verbs_soft.h"

int verbs_enter(struct ibv_context *context)
{
	struct soft_context *c = verbs_context_of(context);
	pthread_mutex_lock(&c->device->lock);
	if (!c->dead)
		return 0;
	pthread_mutex_unlock(&c->device->lock);
	return EIO;
}

void verbs_leave(struct ibv_context *context)
{
	pthread_mutex_unlock(&verbs_context_of(context)->device->lock);
}

int verbs_gate(struct ibv_context *context, const char *verb)
{
	int err = verbs_call(context->device->name, verb);
	if (err)
		return err;
	err = verbs_enter(context);
	if (!err)
		verbs_leave(context);
	return err;
}

int verbs_begin(struct ibv_context *context, const char *verb)
{
	int err = verbs_call(context->device->name, verb);
	return err ? err : verbs_enter(context);
}

void verbs_adopt(struct ibv_context *context, struct soft_object *object, void (*release)(struct soft_object *))
{
	object->release = release;
	rdma_link_append(&verbs_context_of(context)->children, &object->link);
}

void verbs_disown(struct soft_object *object)
{
	rdma_link_remove(&object->link);
}

void verbs_keep(struct ibv_context *context, struct soft_object *object, void (*release)(struct soft_object *))
{
	pthread_mutex_lock(&verbs_context_of(context)->device->lock);
	verbs_adopt(context, object, release);
	verbs_leave(context);
}

/* Takes the object out of its context and frees it. */
void verbs_drop(struct ibv_context *context, struct soft_object *object)
{
	pthread_mutex_lock(&verbs_context_of(context)->device->lock);
	verbs_disown(object);
	object->release(object);
	verbs_leave(context);
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
	int err = verb ? verbs_begin(context, verb) : verbs_enter(context);
	if (err)
		return err;
	if (o->users)
		err = EBUSY;
	else
		verbs_disown(o);
	verbs_leave(context);
	if (err)
		return err;
	/* only holders of one of its events can still find it */
	verbs_events_wait(o);
	pthread_mutex_lock(&verbs_context_of(context)->device->lock);
	o->release(o);
	verbs_leave(context);
	return 0;
}

uint32_t verbs_handle(struct ibv_context *context)
{
	return ++verbs_context_of(context)->handles;
}
