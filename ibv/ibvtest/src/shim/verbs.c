/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs.c: the shim of libibverbs, for verbs that fail without a call of the kernel: the list of devices, the end of a
 * context, its events, and four operations of a context, which it replaces when the context is opened. */
#include "shim.h"

#define REAL(verb) SHIM_REAL("libibverbs.so.1", verb)

void ibv_free_device_list(struct ibv_device **list);
SHIM_PUBLIC struct ibv_device **ibv_get_device_list(int *n);
SHIM_PUBLIC struct ibv_context *ibv_open_device(struct ibv_device *device);
SHIM_PUBLIC int ibv_close_device(struct ibv_context *context);
SHIM_PUBLIC int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event);

/* The operations of an open context as the provider made them. */
struct provided {
	struct provided *next;
	struct ibv_context *context;
	struct ibv_context_ops ops;
	int (*attach)(struct ibv_counters *counters, struct ibv_counter_attach_attr *attr, struct ibv_flow *flow);
};
static struct provided *provided;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The link to the context's, for taking it out. The lock is held. */
static struct provided **link_of(const struct ibv_context *context)
{
	struct provided **at = &provided;
	while (*at && (*at)->context != context)
		at = &(*at)->next;
	return at;
}

static const struct provided *of(const struct ibv_context *context)
{
	pthread_mutex_lock(&lock);
	const struct provided *p = *link_of(context);
	pthread_mutex_unlock(&lock);
	return p;
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int err = shim_verb(cq->context, "ibv_poll_cq");
	return err ? -err : of(cq->context)->ops.poll_cq(cq, n, wc);
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int err = shim_verb(qp->context, "ibv_post_send");
	if (!err)
		return of(qp->context)->ops.post_send(qp, wr, bad);
	*bad = wr;
	return err;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int err = shim_verb(qp->context, "ibv_post_recv");
	if (!err)
		return of(qp->context)->ops.post_recv(qp, wr, bad);
	*bad = wr;
	return err;
}

static int attach(struct ibv_counters *counters, struct ibv_counter_attach_attr *attr, struct ibv_flow *flow)
{
	int err = shim_verb(counters->context, "ibv_attach_counters_point_flow");
	return err ? err : of(counters->context)->attach(counters, attr, flow);
}

static struct verbs_context *verbs_of(struct ibv_context *context)
{
	return (struct verbs_context *)(void *)((char *)context - offsetof(struct verbs_context, context));
}

static void replace(struct ibv_context *context)
{
	struct verbs_context *v = verbs_of(context);
	struct provided *p = calloc(1, sizeof(*p));
	if (!p)
		abort();
	*p = (struct provided){.context = context, .ops = context->ops, .attach = v->attach_counters_point_flow};
	pthread_mutex_lock(&lock);
	p->next = provided;
	provided = p;
	pthread_mutex_unlock(&lock);
	context->ops.poll_cq = poll_cq;
	context->ops.post_send = post_send;
	context->ops.post_recv = post_recv;
	if (p->attach)
		v->attach_counters_point_flow = attach;
}

/* The list itself makes the kernel read its environment. */
struct ibv_device **ibv_get_device_list(int *n)
{
	struct ibv_device **list = REAL(ibv_get_device_list)(n);
	int err = list ? shim_verb(NULL, "ibv_get_device_list") : 0;
	if (!err)
		return list;
	REAL(ibv_free_device_list)(list);
	return shim_fail(err);
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *context = REAL(ibv_open_device)(device);
	if (context)
		replace(context);
	return context;
}

/* A caller repeats the call after EBUSY. After any other error it does not, and an open context would keep the environment
 * of this test for those behind it. */
int ibv_close_device(struct ibv_context *context)
{
	int err = shim_verb(context, "ibv_close_device");
	if (err == EBUSY)
		return err;
	pthread_mutex_lock(&lock);
	struct provided **at = link_of(context), *p = *at;
	if (p)
		*at = p->next;
	pthread_mutex_unlock(&lock);
	free(p);
	int closed = REAL(ibv_close_device)(context);
	return err ? err : closed;
}


int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	errno = shim_verb(context, "ibv_get_async_event");
	return errno ? -1 : REAL(ibv_get_async_event)(context, event);
}
