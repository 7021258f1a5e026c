/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_wire.c: the common part of all devices that move data: one lock, the existing queue pairs
 * and memory regions, and a thread for requests that have to wait. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "verbs_data.h"

/* The lists' heads are set up before main. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct soft_link qps, mrs;
	uint32_t numbers, keys;
	uint64_t next; /* the earliest wake of all */
	pthread_t thread;
	bool running, stop;
} wire = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.qps = {&wire.qps, &wire.qps},
	.mrs = {&wire.mrs, &wire.mrs},
	.numbers = 0x100, /* 0 and 1 are the management queue pairs */
	.keys = 1,
	.next = SOFT_NEVER,
};

__attribute__((constructor)) static void load(void)
{
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&wire.cond, &attr);
	pthread_condattr_destroy(&attr);
}

void verbs_wire_lock(void)
{
	pthread_mutex_lock(&wire.lock);
}

void verbs_wire_unlock(void)
{
	pthread_mutex_unlock(&wire.lock);
}

struct soft_link *verbs_wire_qps(void)
{
	return &wire.qps;
}

struct soft_link *verbs_wire_mrs(void)
{
	return &wire.mrs;
}

uint32_t verbs_wire_number(void)
{
	return wire.numbers++ & 0xffffff;
}

/* As firmware: an index and 8 bits of the consumer's, which are 0. */
uint32_t verbs_wire_key(void)
{
	return wire.keys++ << 8;
}

uint64_t verbs_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

struct soft_qp *verbs_qp_by_number(uint32_t number)
{
	for (struct soft_link *l = wire.qps.next; l != &wire.qps; l = l->next) {
		struct soft_qp *q = VERBS_OUTER(l, struct soft_qp, wire);
		if (q->qp.qp_num == number)
			return q;
	}
	return NULL;
}

/* The link-local GID of the netdev's address, the one that a device has. */
void verbs_gid(struct ibv_device *device, union ibv_gid *gid)
{
	extern uint64_t ibv_get_device_guid(struct ibv_device *);
	static const uint8_t prefix[8] = {0xfe, 0x80};
	memcpy(gid->raw, prefix, sizeof(prefix));
	gid->global.interface_id = ibv_get_device_guid(device);
}

/* Runs the queue pairs that are due, and finds the next time. A queue pair that ran may be due
 * again. */
static void run_due(void)
{
	uint64_t now = verbs_now();
	wire.next = SOFT_NEVER;
	for (struct soft_link *l = wire.qps.next; l != &wire.qps; l = l->next) {
		struct soft_qp *q = VERBS_OUTER(l, struct soft_qp, wire);
		if (q->wake <= now)
			q->run(q);
		if (q->wake < wire.next)
			wire.next = q->wake;
	}
}

static void *run(void *arg)
{
	(void)arg;
	verbs_wire_lock();
	while (!wire.stop) {
		struct timespec at = {.tv_sec = wire.next / 1000000000, .tv_nsec = wire.next % 1000000000};
		if (wire.next == SOFT_NEVER)
			pthread_cond_wait(&wire.cond, &wire.lock);
		else if (pthread_cond_timedwait(&wire.cond, &wire.lock, &at) == ETIMEDOUT)
			run_due();
	}
	verbs_wire_unlock();
	return NULL;
}

void verbs_wake(struct soft_qp *q, uint64_t at)
{
	sigset_t all, old;
	q->wake = at;
	if (at >= wire.next)
		return;
	wire.next = at;
	if (wire.running) {
		pthread_cond_signal(&wire.cond);
		return;
	}
	/* The host's signal handlers, Go's above all, must not run on this thread. */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	wire.running = !pthread_create(&wire.thread, NULL, run, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* At the library's end, when no thread calls it any more. */
void verbs_wire_close(void)
{
	verbs_wire_lock();
	bool running = wire.running;
	wire.stop = true;
	pthread_cond_signal(&wire.cond);
	verbs_wire_unlock();
	if (running)
		pthread_join(wire.thread, NULL);
}
