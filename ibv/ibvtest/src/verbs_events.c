/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_events.c: asynchronous events. A context's async_fd is a pipe of whole
 * struct ibv_async_event; as with uverbs it polls readable when one is there, it may be
 * made non-blocking, and when the device is gone and the events are read, it answers EIO. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "verbs_soft.h"

/* The end of the pipe here does not block: an event that finds it full, with some
 * 4,000 that nobody read, is dropped. */
void verbs_event(struct soft_context *c, uint32_t type, int port)
{
	struct ibv_async_event e;
	memset(&e, 0, sizeof(e));
	e.element.port_num = port;
	e.event_type = type;
	if (c->event_fd >= 0)
		(void)!write(c->event_fd, &e, sizeof(e));
}

void verbs_port_event(struct soft_device *d, uint32_t type)
{
	for (struct soft_link *l = d->contexts.next; l != &d->contexts; l = l->next)
		verbs_event(VERBS_OUTER(l, struct soft_context, link), type, 1);
}

/* The flows stop counting at once: their rules go. The objects stay until the context
 * is closed, for every verb answers EIO from here on, those that destroy included. */
static void disarm(struct soft_context *c)
{
	for (struct soft_link *l = c->children.next; l != &c->children; l = l->next) {
		struct soft_object *o = VERBS_OUTER(l, struct soft_object, link);
		if (o->stop)
			o->stop(o);
	}
}

void verbs_device_gone(struct soft_device *d)
{
	for (struct soft_link *l = d->contexts.next; l != &d->contexts; l = l->next) {
		struct soft_context *c = VERBS_OUTER(l, struct soft_context, link);
		if (c->dead)
			continue;
		c->dead = true;
		disarm(c);
		verbs_event(c, IBV_EVENT_DEVICE_FATAL, 0);
		close(c->event_fd);
		c->event_fd = -1;
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
	ssize_t n = read(context->async_fd, event, sizeof(*event));
	if (n == sizeof(*event))
		return 0;
	if (n >= 0)
		errno = EIO;
	return -1;
}

/* Only events of objects are waited for, and there are none. */
VERBS_PUBLIC void ibv_ack_async_event(struct ibv_async_event *event)
{
	(void)event;
	verbs_call(NULL, "ibv_ack_async_event");
}

VERBS_PUBLIC const char *ibv_event_type_str(uint32_t type)
{
	switch (type) {
	case IBV_EVENT_DEVICE_FATAL:
		return "local catastrophic error";
	case IBV_EVENT_PORT_ACTIVE:
		return "port active";
	case IBV_EVENT_PORT_ERR:
		return "port error";
	default:
		return "unknown";
	}
}
