// SPDX-License-Identifier: Apache-2.0
// events.c: devices that go and come back, ports that go down, faults and absent
// capabilities.
#include "check.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

/* Waits for the control thread's change; twenty seconds at most. */
#define EVENTUALLY(cond)                                                                                               \
	do {                                                                                                           \
		bool held_ = false;                                                                                    \
		for (int i_ = 0; i_ < 20000 && !(held_ = (cond)); i_++)                                                 \
			usleep(1000);                                                                                  \
		WANT(held_, true);                                                                                     \
	} while (0)

static int listed(void)
{
	int n = 0;
	ibv_free_device_list(ibv_get_device_list(&n));
	return n;
}

void case_removal(void)
{
	struct rig r;
	struct blob b;
	uint64_t v[2];
	rig_up(&r);
	struct ibv_counters *c = packets_and_bytes(r.context);
	blob_init(&b, 0, 0);
	blob_count(&b, c);
	struct ibv_flow *flow = blob_flow(&b, r.qp);
	NEED(flow);
	tell("remove mlx5_0\n");
	WANT(next_event(r.context), IBV_EVENT_DEVICE_FATAL);
	WANT(listed(), 1);
	WANT(ibv_read_counters(c, v, 2, 0), EIO);
	WANT_NULL(blob_flow(&b, r.qp), EIO);
	WANT_NULL(ibv_alloc_pd(r.context), EIO);
	WANT(ibv_destroy_flow(flow), 0);
	WANT(ibv_destroy_counters(c), 0);
	WANT(ibv_destroy_qp(r.qp), 0);
	tell("return mlx5_0\n");
	EVENTUALLY(listed() == 2);
	WANT_NULL(ibv_alloc_pd(r.context), EIO); /* contexts that were open stay dead */
	struct rig again;
	rig_up(&again);
	c = packets_and_bytes(again.context);
	blob_init(&b, 0, 0);
	blob_udp(&b, 9000);
	blob_count(&b, c);
	NEED(flow = blob_flow(&b, again.qp));
	WANT(ibv_close_device(r.context), 0); /* takes the rest with it, and nothing of the new one */
	send_udp(3, 9000, 10);
	WANT(ibv_read_counters(c, v, 2, 0), 0);
	WANT(v[0], 3);
	WANT(ibv_destroy_flow(flow), 0);
	WANT(ibv_destroy_counters(c), 0);
	rig_down(&again);
}

void case_fatal(void)
{
	struct ibv_context *c = open_device("mlx5_0"), *other = open_device("mlx5_1");
	struct ibv_device_attr a;
	NEED(c && other);
	tell("fatal mlx5_0\n");
	WANT(next_event(c), IBV_EVENT_DEVICE_FATAL);
	WANT(listed(), 2);
	WANT(open_device("mlx5_0") == NULL, true);
	WANT(ibv_query_device(c, &a), EIO);
	WANT(ibv_query_device(other, &a), 0);
	WANT(ibv_close_device(c), 0);
	WANT(ibv_close_device(other), 0);
}

void case_port(void)
{
	struct ibv_context *c = open_device("mlx5_0");
	struct ibv_port_attr p;
	struct ibv_async_event e;
	NEED(c);
	tell("port_down mlx5_0\nport_up mlx5_0\nport_down mlx5_0\n");
	WANT(next_event(c), IBV_EVENT_PORT_ERR);
	WANT(next_event(c), IBV_EVENT_PORT_ACTIVE);
	WANT(next_event(c), IBV_EVENT_PORT_ERR);
	WANT(ibv_query_port(c, 1, &p), 0);
	WANT(p.state, IBV_PORT_DOWN);
	fcntl(c->async_fd, F_SETFL, O_NONBLOCK);
	WANT(ibv_get_async_event(c, &e), -1);
	WANT(errno, EAGAIN);
	WANT(ibv_close_device(c), 0);
}

/* FAIL=ibv_alloc_pd=ENOMEM@2-3,mlx5_1/ibv_query_device=EIO DELAY=ibv_query_device=20ms */
void case_faults(void)
{
	struct ibv_context *c = open_device("mlx5_0"), *other = open_device("mlx5_1");
	struct ibv_pd *pd[2];
	struct ibv_device_attr a;
	struct timespec from, to;
	NEED(c && other);
	NEED(pd[0] = ibv_alloc_pd(c));
	WANT_NULL(ibv_alloc_pd(c), ENOMEM);
	WANT_NULL(ibv_alloc_pd(other), ENOMEM);
	NEED(pd[1] = ibv_alloc_pd(c));
	WANT(ibv_query_device(other, &a), EIO);
	clock_gettime(CLOCK_MONOTONIC, &from);
	WANT(ibv_query_device(c, &a), 0);
	clock_gettime(CLOCK_MONOTONIC, &to);
	WANT((to.tv_sec - from.tv_sec) * 1000000000LL + to.tv_nsec - from.tv_nsec >= 20000000, true);
	WANT(ibv_dealloc_pd(pd[0]), 0);
	WANT(ibv_dealloc_pd(pd[1]), 0);
	WANT(ibv_close_device(c), 0);
	WANT(ibv_close_device(other), 0);
}

/* WITHOUT=counters,dont_trap,egress,mlx5_1/flows,mlx5_1/raw,comp_cntr */
void case_without(void)
{
	struct rig r;
	struct blob b;
	rig_up(&r);
	struct ibv_counters_init_attr init = {0};
	WANT_NULL(ibv_create_counters(r.context, &init), EOPNOTSUPP);
	blob_init(&b, 0, IBV_FLOW_ATTR_FLAGS_DONT_TRAP);
	WANT_NULL(blob_flow(&b, r.qp), EOPNOTSUPP);
	blob_init(&b, 0, IBV_FLOW_ATTR_FLAGS_EGRESS);
	WANT_NULL(blob_flow(&b, r.qp), EOPNOTSUPP);
	blob_init(&b, 0, 0);
	struct ibv_flow *flow = blob_flow(&b, r.qp);
	NEED(flow);
	WANT(ibv_destroy_flow(flow), 0);
	struct ibv_context *c = open_device("mlx5_1");
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_cq *cq = ibv_create_cq(c, 1, NULL, NULL, 0);
	struct ibv_qp_init_attr a = qp_attr(cq, IBV_QPT_RAW_PACKET);
	WANT_NULL(ibv_create_qp(pd, &a), EOPNOTSUPP);
	a.qp_type = IBV_QPT_UD;
	struct ibv_qp *ud = ibv_create_qp(pd, &a);
	NEED(ud);
	WANT_NULL(blob_flow(&b, ud), EOPNOTSUPP);
	WANT(ibv_destroy_qp(ud), 0);
	WANT(ibv_destroy_cq(cq), 0);
	WANT(ibv_dealloc_pd(pd), 0);
	WANT(ibv_close_device(c), 0);
	rig_down(&r);
}
