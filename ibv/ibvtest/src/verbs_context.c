/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_context.c: the start and the end of every verb, and the objects of a context. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>

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

/* Opening a socket in another network namespace takes a thread that enters it. */
struct visit {
	struct soft_device *device;
	int err;
};

static void *visit(void *arg)
{
	struct visit *v = arg;
	v->err = setns(v->device->netns_fd, CLONE_NEWNET) ? errno : nic_open(v->device->netdev, &v->device->nic);
	return NULL;
}

static int open_nic(struct soft_device *d)
{
	struct stat ns;
	struct visit v = {.device = d};
	sigset_t all, old;
	pthread_t thread;
	if (d->netns_fd < 0 || stat("/proc/thread-self/ns/net", &ns) || ns.st_ino == d->netns)
		return nic_open(d->netdev, &d->nic);
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	int err = pthread_create(&thread, NULL, visit, &v);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err)
		return err;
	pthread_join(thread, NULL);
	return v.err;
}

struct nic *verbs_nic(struct ibv_context *context, int *err)
{
	struct soft_device *d = verbs_context_of(context)->device;
	*err = d->nic ? 0 : open_nic(d);
	return *err ? NULL : d->nic;
}

void verbs_note_drops(struct soft_device *d)
{
	uint64_t now = d->nic ? nic_drops(d->nic) : d->drops;
	verbs_count("NIC_DROPS", now - d->drops);
	d->drops = now;
}
