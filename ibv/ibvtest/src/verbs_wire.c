/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_wire.c: the wire's thread for requests that have to wait. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "uverbs/uverbs_core.h"
#include "verbs_data.h"

static struct {
	pthread_cond_t cond;
	uint64_t next; /* the earliest wake of all */
	pthread_t id;
	bool running, stop;
} thread = {
	.next = RDMA_NEVER,
};

__attribute__((constructor)) static void load(void)
{
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&thread.cond, &attr);
	pthread_condattr_destroy(&attr);
}

/* Every task is this process. */
void rdma_copy(const void *to_task, void *to, const void *from_task, const void *from, uint64_t n)
{
	(void)to_task;
	(void)from_task;
	memmove(to, from, n);
}

/* Runs the queue pairs that are due, and finds the next time. A queue pair that ran may be due
 * again. */
static void run_due(void)
{
	uint64_t now = rdma_now();
	thread.next = RDMA_NEVER;
	for (struct rdma_link *l = rdma_wire_qps()->next; l != rdma_wire_qps(); l = l->next) {
		struct rdma_qp *q = RDMA_OUTER(l, struct rdma_qp, wire);
		if (q->wake <= now)
			q->run(q);
		if (q->wake < thread.next)
			thread.next = q->wake;
	}
}

static void *run(void *arg)
{
	(void)arg;
	uv_lock();
	while (!thread.stop) {
		struct timespec at = {.tv_sec = thread.next / 1000000000, .tv_nsec = thread.next % 1000000000};
		if (thread.next == RDMA_NEVER)
			pthread_cond_wait(&thread.cond, &uv_mutex);
		else if (pthread_cond_timedwait(&thread.cond, &uv_mutex, &at) == ETIMEDOUT)
			run_due();
	}
	uv_unlock();
	return NULL;
}

void rdma_wake(struct rdma_qp *q, uint64_t at)
{
	sigset_t all, old;
	q->wake = at;
	if (at >= thread.next)
		return;
	thread.next = at;
	if (thread.running) {
		pthread_cond_signal(&thread.cond);
		return;
	}
	/* The host's signal handlers, Go's above all, must not run on this thread. */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	thread.running = !pthread_create(&thread.id, NULL, run, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* At the library's end, when no thread calls it any more. */
void verbs_wire_close(void)
{
	uv_lock();
	bool running = thread.running;
	thread.stop = true;
	pthread_cond_signal(&thread.cond);
	uv_unlock();
	if (running)
		pthread_join(thread.id, NULL);
}
