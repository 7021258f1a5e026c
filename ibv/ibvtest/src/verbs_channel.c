/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_channel.c: completion channels: the events that ibv_req_notify_cq(3) asks for. As
 * with asynchronous events, one of a queue that has been destroyed since is passed over, and
 * one that was read holds up the queue's end until it is acknowledged
 * (ibv_get_cq_event(3)). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "verbs_data.h"

struct soft_channel {
	struct ibv_comp_channel channel;
	struct soft_object object; /* users: queues */
	int end;                   /* the pipe's, for writing */
};

struct record {
	struct ibv_cq *cq;
	uint32_t handle;
};

static void release_channel(struct soft_object *o)
{
	struct soft_channel *c = RDMA_OUTER(o, struct soft_channel, object);
	close(c->channel.fd);
	close(c->end);
	free(c);
}

VERBS_PUBLIC struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	int ends[2];
	int err = verbs_begin(context, "ibv_create_comp_channel");
	if (err)
		return verbs_made(NULL, err);
	struct soft_channel *c = calloc(1, sizeof(*c));
	if (!c)
		err = ENOMEM;
	else if (pipe2(ends, O_CLOEXEC))
		err = errno;
	if (!err) {
		fcntl(ends[1], F_SETFL, O_NONBLOCK);
		c->channel.context = context;
		c->channel.fd = ends[0];
		c->end = ends[1];
		verbs_adopt(context, &c->object, release_channel);
	} else {
		free(c);
	}
	verbs_leave(context);
	return verbs_made(c, err);
}

VERBS_PUBLIC int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	return verbs_destroy(channel->context, "ibv_destroy_comp_channel", &((struct soft_channel *)channel)->object);
}

void verbs_channel_use(struct ibv_comp_channel *channel, int by)
{
	channel->refcnt += by;
	((struct soft_channel *)channel)->object.users += by;
}

void verbs_channel_event(struct soft_cq *c)
{
	struct record r = {&c->cq, c->cq.handle};
	(void)!write(((struct soft_channel *)c->cq.channel)->end, &r, sizeof(r));
}

VERBS_PUBLIC int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	struct record r;
	int err = verbs_call(channel->context->device->name, "ibv_get_cq_event");
	if (err) {
		errno = err;
		return -1;
	}
	do {
		if (read(channel->fd, &r, sizeof(r)) != sizeof(r))
			return -1;
	} while (!verbs_events_hold(channel->context, &((struct soft_cq *)r.cq)->object, r.handle));
	*cq = r.cq;
	*cq_context = r.cq->cq_context;
	return 0;
}

VERBS_PUBLIC void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	verbs_call(NULL, "ibv_ack_cq_events");
	verbs_events_release(&((struct soft_cq *)cq)->object, n);
}
