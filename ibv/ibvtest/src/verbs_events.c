/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_events.c: asynchronous events. A context's async_fd is a pipe of whole records. As with
 * uverbs it polls readable when it has a record, and it may be made non-blocking. When the device
 * is gone and the events are read, it returns EIO. An event of an object that has been destroyed
 * since is skipped. An event that was read delays the object's destruction until it is
 * acknowledged (ibv_get_async_event(3)). */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "verbs_data.h"
#include "verbs_kernel.h"

struct record {
	struct ibv_async_event event;
	uint32_t handle; /* of the object; 0: of a port or the device */
};

/* Protects the ends of the pipes here, and the counts of unacknowledged events; a leaf. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t acked = PTHREAD_COND_INITIALIZER;

/* The end of the pipe here does not block: an event that finds the pipe full of thousands of
 * unread events is dropped. */
static void put(struct soft_context *c, const struct record *r)
{
	pthread_mutex_lock(&lock);
	if (c->event_fd >= 0)
		(void)!write(c->event_fd, r, sizeof(*r));
	pthread_mutex_unlock(&lock);
}

void verbs_event(struct soft_context *c, uint32_t type, int port)
{
	struct record r;
	memset(&r, 0, sizeof(r));
	r.event.element.port_num = port;
	r.event.event_type = type;
	put(c, &r);
}

void verbs_object_event(struct ibv_context *context, uint32_t type, void *object, uint32_t handle)
{
	struct record r;
	memset(&r, 0, sizeof(r));
	r.event.element.cq = object; /* or a QP: members of a union */
	r.event.event_type = type;
	r.handle = handle;
	put(verbs_context_of(context), &r);
}

/* The object of an event, or NULL. */
static struct soft_object *about(const struct ibv_async_event *e)
{
	switch (e->event_type) {
	case IBV_EVENT_CQ_ERR:
		return &((struct soft_cq *)e->element.cq)->object;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_SQ_DRAINED:
		return &((struct soft_qp *)e->element.qp)->object;
	default:
		return NULL;
	}
}

/* By address and handle: memory is used again. */
bool verbs_events_hold(struct ibv_context *context, struct soft_object *o, uint32_t handle)
{
	struct soft_context *c = verbs_context_of(context);
	bool found = false;
	pthread_mutex_lock(&c->device->lock);
	for (struct rdma_link *l = c->children.next; !found && l != &c->children; l = l->next)
		found = RDMA_OUTER(l, struct soft_object, link) == o && o->handle == handle;
	if (found) {
		pthread_mutex_lock(&lock);
		o->unacked++;
		pthread_mutex_unlock(&lock);
	}
	pthread_mutex_unlock(&c->device->lock);
	return found;
}

void verbs_events_release(struct soft_object *o, unsigned n)
{
	pthread_mutex_lock(&lock);
	o->unacked -= n;
	pthread_cond_broadcast(&acked);
	pthread_mutex_unlock(&lock);
}

void verbs_events_wait(struct soft_object *o)
{
	pthread_mutex_lock(&lock);
	while (o->unacked)
		pthread_cond_wait(&acked, &lock);
	pthread_mutex_unlock(&lock);
}

void verbs_port_event(struct soft_device *d, uint32_t type)
{
	for (struct rdma_link *l = d->contexts.next; l != &d->contexts; l = l->next)
		verbs_event(RDMA_OUTER(l, struct soft_context, link), type, 1);
}

/* The objects stay until the context is closed, because every verb returns EIO from here on, the destroying ones
 * included. */
static void disarm(struct soft_context *c)
{
	for (struct rdma_link *l = c->children.next; l != &c->children; l = l->next) {
		struct soft_object *o = RDMA_OUTER(l, struct soft_object, link);
		if (o->stop)
			o->stop(o);
	}
}

void verbs_device_gone(struct soft_device *d, bool event)
{
	verbs_kernel_lose(d);
	for (struct rdma_link *l = d->contexts.next; l != &d->contexts; l = l->next) {
		struct soft_context *c = RDMA_OUTER(l, struct soft_context, link);
		if (c->dead)
			continue;
		c->dead = true;
		disarm(c);
		if (!event)
			continue;
		verbs_event(c, IBV_EVENT_DEVICE_FATAL, 0);
		pthread_mutex_lock(&lock);
		close(c->event_fd);
		c->event_fd = -1;
		pthread_mutex_unlock(&lock);
	}
}

/* Unlike other verbs it works on a dead context, until its events are read. */
VERBS_PUBLIC int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	int err = verbs_call(context->device->name, "ibv_get_async_event");
	if (err) {
		errno = err;
		return -1;
	}
	for (;;) {
		struct record r;
		ssize_t n = read(context->async_fd, &r, sizeof(r));
		if (n >= 0 && n != sizeof(r))
			errno = EIO;
		if (n != sizeof(r))
			return -1;
		struct soft_object *o = about(&r.event);
		if (o && !verbs_events_hold(context, o, r.handle))
			continue;
		*event = r.event;
		return 0;
	}
}

VERBS_PUBLIC void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct soft_object *o = about(event);
	verbs_call(NULL, "ibv_ack_async_event");
	if (o)
		verbs_events_release(o, 1);
}
