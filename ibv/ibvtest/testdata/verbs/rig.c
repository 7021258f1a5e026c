// SPDX-License-Identifier: Apache-2.0
// rig.c: the objects from which the cases are built.
#include "check.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

struct ibv_context *open_device(const char *name)
{
	int n = 0;
	struct ibv_context *c = NULL;
	struct ibv_device **list = ibv_get_device_list(&n);
	NEED(list);
	for (int i = 0; i < n && !c; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			c = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	return c;
}

struct ibv_qp_init_attr qp_attr(struct ibv_cq *cq, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr a = {.send_cq = cq, .recv_cq = cq, .qp_type = type};
	a.cap.max_send_wr = a.cap.max_recv_wr = a.cap.max_send_sge = a.cap.max_recv_sge = 1;
	return a;
}

void rig_up(struct rig *r)
{
	NEED(r->context = open_device("mlx5_0"));
	NEED(r->pd = ibv_alloc_pd(r->context));
	NEED(r->cq = ibv_create_cq(r->context, 16, NULL, NULL, 0));
	struct ibv_qp_init_attr a = qp_attr(r->cq, IBV_QPT_RAW_PACKET);
	NEED(r->qp = ibv_create_qp(r->pd, &a));
}

void rig_down(struct rig *r)
{
	WANT(ibv_destroy_qp(r->qp), 0);
	WANT(ibv_destroy_cq(r->cq), 0);
	WANT(ibv_dealloc_pd(r->pd), 0);
	WANT(ibv_close_device(r->context), 0);
}

void blob_init(struct blob *b, uint16_t priority, uint32_t flags)
{
	memset(b, 0, sizeof(*b));
	b->attr.type = IBV_FLOW_ATTR_NORMAL;
	b->attr.size = sizeof(b->attr);
	b->attr.priority = priority;
	b->attr.port = 1;
	b->attr.flags = flags;
}

void blob_add(struct blob *b, const void *spec, uint16_t size)
{
	memcpy((char *)b + b->attr.size, spec, size);
	b->attr.size += size;
	b->attr.num_of_specs++;
}

void blob_udp(struct blob *b, uint16_t dport)
{
	struct ibv_flow_spec_ipv4 ip = {.type = IBV_FLOW_SPEC_IPV4, .size = sizeof(ip)};
	struct ibv_flow_spec_tcp_udp udp = {.type = IBV_FLOW_SPEC_UDP, .size = sizeof(udp)};
	udp.val.dst_port = htons(dport);
	udp.mask.dst_port = dport ? 0xffff : 0;
	blob_add(b, &ip, sizeof(ip));
	blob_add(b, &udp, sizeof(udp));
}

void blob_count(struct blob *b, struct ibv_counters *counters)
{
	struct ibv_flow_spec_counter_action count;
	memset(&count, 0, sizeof(count));
	count.type = IBV_FLOW_SPEC_ACTION_COUNT;
	count.size = sizeof(count);
	count.counters = counters;
	blob_add(b, &count, sizeof(count));
}

struct ibv_flow *blob_flow(struct blob *b, struct ibv_qp *qp)
{
	return ibv_create_flow(qp, (struct ibv_flow_attr *)(void *)b);
}

struct ibv_counters *packets_and_bytes(struct ibv_context *context)
{
	struct ibv_counters_init_attr init = {0};
	struct ibv_counter_attach_attr a = {.counter_desc = IBV_COUNTER_PACKETS, .index = 0};
	struct ibv_counters *c = ibv_create_counters(context, &init);
	NEED(c);
	WANT(ibv_attach_counters_point_flow(c, &a, NULL), 0);
	a.counter_desc = IBV_COUNTER_BYTES;
	a.index = 1;
	WANT(ibv_attach_counters_point_flow(c, &a, NULL), 0);
	return c;
}

uint64_t frame_bytes(size_t payload)
{
	return 14 + 20 + 8 + payload;
}

void send_udp(unsigned n, uint16_t dport, size_t payload)
{
	uint8_t f[2048] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x08, 0x00, 0x45};
	struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_ifindex = if_nametoindex("v1"), .sll_halen = 6};
	uint16_t total = htons(28 + payload), length = htons(8 + payload), port = htons(dport);
	memcpy(f + 16, &total, 2);
	f[22] = 64, f[23] = 17;
	memcpy(f + 26, (uint8_t[]){192, 0, 2, 1, 192, 0, 2, 2}, 8);
	memcpy(f + 36, &port, 2);
	memcpy(f + 38, &length, 2);
	int s = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	NEED(s >= 0);
	while (n--)
		NEED(sendto(s, f, frame_bytes(payload), 0, (struct sockaddr *)&to, sizeof(to)) > 0);
	close(s);
}

void tell(const char *line)
{
	int fd = open(getenv("FLOWTALLY_IBVTEST_CONTROL"), O_WRONLY | O_NONBLOCK);
	NEED(fd >= 0);
	NEED(write(fd, line, strlen(line)) == (ssize_t)strlen(line));
	close(fd);
}

int next_event(struct ibv_context *c)
{
	struct pollfd p = {.fd = c->async_fd, .events = POLLIN};
	struct ibv_async_event e;
	if (poll(&p, 1, 20000) != 1 || ibv_get_async_event(c, &e))
		return -1;
	ibv_ack_async_event(&e);
	return e.event_type;
}
