/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_context.c: opening and closing a device, and the start of every verb. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "verbs_soft.h"

struct soft_context *verbs_context_of(struct ibv_context *context)
{
	return VERBS_OUTER(context, struct soft_context, verbs.context);
}

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
	soft_link_append(&verbs_context_of(context)->children, &object->link);
}

void verbs_disown(struct soft_object *object)
{
	soft_link_remove(&object->link);
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
	v->context.ops.req_notify_cq = verbs_req_notify_cq;
	v->context.ops.post_send = verbs_post_send;
	v->context.ops.post_recv = verbs_post_recv;
	v->context.num_comp_vectors = 1;
	v->context.abi_compat = (void *)UINTPTR_MAX;
}

/* The common part of ibv_open_device and mlx5dv_open_device: NULL and errno. */
struct ibv_context *verbs_open(struct ibv_device *device)
{
	struct soft_device *d = (struct soft_device *)device;
	int ends[2];
	struct soft_context *c = calloc(1, sizeof(*c));
	if (!c || pipe2(ends, O_CLOEXEC)) {
		free(c);
		return NULL;
	}
	fcntl(ends[1], F_SETFL, O_NONBLOCK);
	fill(&c->verbs);
	c->device = d;
	c->verbs.context.device = device;
	c->verbs.context.cmd_fd = -1;
	c->verbs.context.async_fd = ends[0];
	c->event_fd = ends[1];
	pthread_mutex_init(&c->verbs.context.mutex, NULL);
	soft_link_init(&c->children);
	verbs_table_lock();
	pthread_mutex_lock(&d->lock);
	bool gone = d->fatal;
	if (!gone) {
		d->refs++;
		soft_link_append(&d->contexts, &c->link);
	}
	pthread_mutex_unlock(&d->lock);
	verbs_table_unlock();
	if (!gone)
		return &c->verbs.context;
	close(ends[0]);
	close(ends[1]);
	pthread_mutex_destroy(&c->verbs.context.mutex);
	free(c);
	errno = EIO;
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

/* Users are released before the objects that they use. Mostly they are younger, but a counter may
 * be younger than the queue pair to which it was attached. */
static void release_unused(struct soft_context *c)
{
	struct soft_link *before;
	for (struct soft_link *l = c->children.prev; l != &c->children; l = before) {
		struct soft_object *o = VERBS_OUTER(l, struct soft_object, link);
		before = l->prev;
		if (o->users)
			continue;
		verbs_disown(o);
		o->release(o);
	}
}

/* Strict: the man page wants every object released first, so EBUSY while there are any.
 * On a dead context nothing could be, so it takes them with it, as the kernel does when
 * the descriptor closes. */
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
	pthread_mutex_lock(&d->lock);
	if (c->children.next != &c->children && !c->dead) {
		pthread_mutex_unlock(&d->lock);
		verbs_table_unlock();
		errno = EBUSY;
		return -1;
	}
	while (c->children.prev != &c->children)
		release_unused(c);
	soft_link_remove(&c->link);
	struct nic *nic = NULL;
	if (d->contexts.next == &d->contexts) {
		verbs_note_drops(d);
		nic = d->nic;
		d->nic = NULL;
		d->drops = 0;
	}
	pthread_mutex_unlock(&d->lock);
	if (nic)
		nic_close(nic);
	verbs_device_unref(d);
	verbs_table_unlock();
	close(context->async_fd);
	if (c->event_fd >= 0)
		close(c->event_fd);
	pthread_mutex_destroy(&context->mutex);
	free(c);
	return 0;
}
