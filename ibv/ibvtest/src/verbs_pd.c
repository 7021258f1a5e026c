/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_pd.c: protection domains, memory regions, completion channels and completion
 * queues. Nothing moves data here, so a region is a claim on its domain and a queue
 * stays empty. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "verbs_soft.h"

struct soft_pd {
	struct ibv_pd pd;
	struct soft_object object;
};

struct soft_mr {
	struct ibv_mr mr;
	struct soft_object object;
};

struct soft_channel {
	struct ibv_comp_channel channel;
	struct soft_object object;
};

struct soft_cq {
	struct ibv_cq cq;
	struct soft_object object;
};

static void release_pd(struct soft_object *o)
{
	free(VERBS_OUTER(o, struct soft_pd, object));
}

VERBS_PUBLIC struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	int err = verbs_begin(context, "ibv_alloc_pd");
	if (err)
		return verbs_made(NULL, err);
	struct soft_pd *p = calloc(1, sizeof(*p));
	if (p) {
		p->pd.context = context;
		p->pd.handle = verbs_handle(context);
		verbs_adopt(context, &p->object, release_pd);
	}
	verbs_leave(context);
	return verbs_made(p, p ? 0 : ENOMEM);
}

VERBS_PUBLIC int ibv_dealloc_pd(struct ibv_pd *pd)
{
	return verbs_destroy(pd->context, "ibv_dealloc_pd", &((struct soft_pd *)pd)->object);
}

void verbs_pd_use(struct ibv_pd *pd, int by)
{
	((struct soft_pd *)pd)->object.users += by;
}

static void release_mr(struct soft_object *o)
{
	struct soft_mr *m = VERBS_OUTER(o, struct soft_mr, object);
	verbs_pd_use(m->mr.pd, -1);
	free(m);
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t length, unsigned access, const char *verb)
{
	int err = verbs_begin(pd->context, verb);
	if (err)
		return verbs_made(NULL, err);
	struct soft_mr *m = NULL;
	/* The man page: remote write and remote atomic need local write. */
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) && !(access & IBV_ACCESS_LOCAL_WRITE))
		err = EINVAL;
	else if (!(m = calloc(1, sizeof(*m))))
		err = ENOMEM;
	if (m) {
		m->mr.context = pd->context;
		m->mr.pd = pd;
		m->mr.addr = addr;
		m->mr.length = length;
		m->mr.handle = m->mr.lkey = m->mr.rkey = verbs_handle(pd->context);
		verbs_pd_use(pd, 1);
		verbs_adopt(pd->context, &m->object, release_mr);
	}
	verbs_leave(pd->context);
	return verbs_made(m, err);
}

/* <infiniband/verbs.h> has macros of these names. */
VERBS_PUBLIC struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return reg_mr(pd, addr, length, access, "ibv_reg_mr");
}

VERBS_PUBLIC struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
					     unsigned int access)
{
	(void)iova;
	return reg_mr(pd, addr, length, access, "ibv_reg_mr");
}

VERBS_PUBLIC int ibv_dereg_mr(struct ibv_mr *mr)
{
	return verbs_destroy(mr->context, "ibv_dereg_mr", &((struct soft_mr *)mr)->object);
}

static void release_channel(struct soft_object *o)
{
	struct soft_channel *c = VERBS_OUTER(o, struct soft_channel, object);
	close(c->channel.fd);
	free(c);
}

VERBS_PUBLIC struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	int err = verbs_begin(context, "ibv_create_comp_channel");
	if (err)
		return verbs_made(NULL, err);
	struct soft_channel *c = calloc(1, sizeof(*c));
	if (c && (c->channel.fd = eventfd(0, EFD_CLOEXEC)) < 0) {
		err = errno;
		free(c);
		c = NULL;
	} else if (!c) {
		err = ENOMEM;
	}
	if (c) {
		c->channel.context = context;
		verbs_adopt(context, &c->object, release_channel);
	}
	verbs_leave(context);
	return verbs_made(c, err);
}

VERBS_PUBLIC int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	return verbs_destroy(channel->context, "ibv_destroy_comp_channel", &((struct soft_channel *)channel)->object);
}

static void release_cq(struct soft_object *o)
{
	struct soft_cq *c = VERBS_OUTER(o, struct soft_cq, object);
	if (c->cq.channel) {
		c->cq.channel->refcnt--;
		((struct soft_channel *)c->cq.channel)->object.users--;
	}
	pthread_mutex_destroy(&c->cq.mutex);
	pthread_cond_destroy(&c->cq.cond);
	free(c);
}

VERBS_PUBLIC struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
					  struct ibv_comp_channel *channel, int comp_vector)
{
	int err = verbs_begin(context, "ibv_create_cq");
	if (err)
		return verbs_made(NULL, err);
	struct soft_cq *c = NULL;
	if (cqe < 1 || cqe > 1 << 16 || comp_vector || (channel && channel->context != context))
		err = EINVAL;
	else if (!(c = calloc(1, sizeof(*c))))
		err = ENOMEM;
	if (c) {
		c->cq.context = context;
		c->cq.channel = channel;
		c->cq.cq_context = cq_context;
		c->cq.cqe = cqe;
		c->cq.handle = verbs_handle(context);
		pthread_mutex_init(&c->cq.mutex, NULL);
		pthread_cond_init(&c->cq.cond, NULL);
		if (channel) {
			channel->refcnt++;
			((struct soft_channel *)channel)->object.users++;
		}
		verbs_adopt(context, &c->object, release_cq);
	}
	verbs_leave(context);
	return verbs_made(c, err);
}

VERBS_PUBLIC int ibv_destroy_cq(struct ibv_cq *cq)
{
	return verbs_destroy(cq->context, "ibv_destroy_cq", &((struct soft_cq *)cq)->object);
}

void verbs_cq_use(struct ibv_cq *cq, int by)
{
	((struct soft_cq *)cq)->object.users += by;
}

/* A negative count, as when a device is in error. */
int verbs_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	(void)wc;
	int err = verbs_gate(cq->context, "ibv_poll_cq");
	return err || n < 0 ? -1 : 0;
}

int verbs_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	(void)solicited_only;
	return verbs_gate(cq->context, "ibv_req_notify_cq");
}
