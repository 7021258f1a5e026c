/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_events.c: asynchronous events as libibverbs reads them. A context's async_fd is the kernel's descriptor
 * (uverbs/uverbs_event.c): it polls readable when it has a record, and it may be made non-blocking. When the device is
 * gone and the events are read, it returns EIO. The kernel drops the unread events of an object that is destroyed.
 * An event that was read delays the end of the destruction until it is acknowledged (ibv_get_async_event(3)). */
#include <errno.h>
#include <unistd.h>

#include "verbs_data.h"

void verbs_events_wait(struct verbs_acked a, uint32_t reported)
{
	pthread_mutex_lock(a.mutex);
	while (*a.completed != reported)
		pthread_cond_wait(a.cond, a.mutex);
	pthread_mutex_unlock(a.mutex);
}

/* Unlike other verbs it works on a dead context, until its events are read. */
VERBS_PUBLIC int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct ib_uverbs_async_event_desc r;
	int err = verbs_call(context->device->name, "ibv_get_async_event");
	ssize_t n = err ? 0 : read(context->async_fd, &r, sizeof(r));
	if (n >= 0 && n != sizeof(r))
		errno = err ? err : EIO;
	if (n != sizeof(r))
		return -1;
	event->element.cq = (void *)(uintptr_t)r.element; /* or a QP: members of a union */
	event->event_type = r.event_type;
	if (r.event_type >= IBV_EVENT_DEVICE_FATAL)
		event->element.port_num = r.element;
	return 0;
}

VERBS_PUBLIC void ibv_ack_async_event(struct ibv_async_event *event)
{
	verbs_call(NULL, "ibv_ack_async_event");
	if (event->event_type >= IBV_EVENT_DEVICE_FATAL)
		return; /* not of an object */
	struct verbs_acked a = event->event_type == IBV_EVENT_CQ_ERR ? VERBS_ACKED(event->element.cq, async_events_completed)
								     : VERBS_ACKED(event->element.qp, events_completed);
	pthread_mutex_lock(a.mutex);
	++*a.completed;
	pthread_cond_signal(a.cond);
	pthread_mutex_unlock(a.mutex);
}
