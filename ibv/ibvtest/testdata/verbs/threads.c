// SPDX-License-Identifier: Apache-2.0
// threads.c: many threads on one context while the device goes and its netdev goes.
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#define THREADS 4

static struct rig shared;
static int stop;

/* Makes, reads and destroys; once the device is gone, it is EIO and nothing else. */
static void *churn(void *arg)
{
	uint16_t port = 9000 + (int)(intptr_t)arg;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		struct ibv_counters_init_attr init = {0};
		struct ibv_counter_attach_attr a = {0};
		struct ibv_counters *c = ibv_create_counters(shared.context, &init);
		struct blob b;
		uint64_t v[1];
		int err = c ? ibv_attach_counters_point_flow(c, &a, NULL) : errno;
		if (err)
			return (void *)(intptr_t)err;
		blob_init(&b, 0, 0);
		blob_udp(&b, port);
		blob_count(&b, c);
		struct ibv_flow *flow = blob_flow(&b, shared.qp);
		if (!flow)
			return (void *)(intptr_t)errno;
		err = ibv_read_counters(c, v, 1, 0);
		err = err ? err : ibv_destroy_flow(flow);
		err = err ? err : ibv_destroy_counters(c);
		if (err)
			return (void *)(intptr_t)err;
	}
	return NULL;
}

void case_threads(void)
{
	pthread_t t[THREADS];
	rig_up(&shared);
	for (intptr_t i = 0; i < THREADS; i++)
		NEED(!pthread_create(&t[i], NULL, churn, (void *)i));
	usleep(300000);
	tell("remove mlx5_0\n");
	WANT(next_event(shared.context), IBV_EVENT_DEVICE_FATAL);
	for (int i = 0; i < THREADS; i++) {
		void *err;
		pthread_join(t[i], &err);
		WANT((intptr_t)err, EIO);
	}
	WANT(ibv_close_device(shared.context), 0);
}

/* Has the test that runs this program do something to the netdev, and waits. */
static void ask(const char *what)
{
	char line[8];
	puts(what);
	NEED(fgets(line, sizeof(line), stdin));
}

/* The netdev goes, and with it the device: at the next read. */
void case_netdev(void)
{
	struct rig r;
	struct blob b;
	uint64_t v[2];
	rig_up(&r);
	struct ibv_counters *c = packets_and_bytes(r.context);
	blob_init(&b, 0, 0);
	blob_count(&b, c);
	NEED(blob_flow(&b, r.qp));
	WANT(ibv_read_counters(c, v, 2, 0), 0);
	ask("delete");
	WANT(ibv_read_counters(c, v, 2, 0), EIO);
	WANT(next_event(r.context), IBV_EVENT_DEVICE_FATAL);
	WANT(ibv_close_device(r.context), 0);
}
