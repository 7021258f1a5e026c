// SPDX-License-Identifier: Apache-2.0
// flows.c: flows and their counters, by ibv_create_counters(3), ibv_attach_counters_point_flow(3),
// ibv_read_counters(3) and ibv_create_flow(3).
#include "check.h"

#include <arpa/inet.h>

static int attach(struct ibv_counters *c, int description, uint32_t index)
{
	struct ibv_counter_attach_attr a = {.counter_desc = description, .index = index};
	return ibv_attach_counters_point_flow(c, &a, NULL);
}

void case_count(void)
{
	struct rig r;
	struct blob b;
	uint64_t v[3] = {7, 7, 7};
	rig_up(&r);
	struct ibv_counters *c = packets_and_bytes(r.context);
	blob_init(&b, 0, IBV_FLOW_ATTR_FLAGS_DONT_TRAP);
	blob_udp(&b, 9000);
	blob_count(&b, c);
	send_udp(5, 9000, 100); /* before the flow: not its packets */
	struct ibv_flow *flow = blob_flow(&b, r.qp);
	NEED(flow);
	send_udp(10, 9000, 100);
	send_udp(3, 9001, 100);
	WANT(ibv_read_counters(c, v, 3, 0), 0);
	WANT(v[0], 10);
	WANT(v[1], 10 * frame_bytes(100));
	WANT(v[2], 0);
	send_udp(1, 9000, 900);
	WANT(ibv_read_counters(c, v, 2, IBV_READ_COUNTERS_ATTR_PREFER_CACHED), 0);
	WANT(v[0], 11);
	WANT(v[1], 10 * frame_bytes(100) + frame_bytes(900));
	/* The value is the object's: it outlives the flow and goes on with the next. */
	WANT(ibv_destroy_flow(flow), 0);
	WANT(ibv_read_counters(c, v, 2, 0), EINVAL);
	send_udp(4, 9000, 100);
	NEED(flow = blob_flow(&b, r.qp));
	send_udp(2, 9000, 100);
	WANT(ibv_read_counters(c, v, 2, 0), 0);
	WANT(v[0], 13);
	WANT(ibv_destroy_flow(flow), 0);
	WANT(ibv_destroy_counters(c), 0);
	rig_down(&r);
}

/* Several flows of one object, and several points of one index, are summed. */
void case_sum(void)
{
	struct rig r;
	struct blob b[2];
	struct ibv_flow *flow[2];
	struct ibv_counters_init_attr init = {0};
	uint64_t v[5];
	rig_up(&r);
	struct ibv_counters *c = ibv_create_counters(r.context, &init);
	NEED(c);
	WANT(attach(c, IBV_COUNTER_PACKETS, 1), 0);
	WANT(attach(c, IBV_COUNTER_PACKETS, 1), 0);
	WANT(attach(c, IBV_COUNTER_BYTES, 3), 0);
	WANT(attach(c, IBV_COUNTER_PACKETS, 3), 0);
	for (int i = 0; i < 2; i++) {
		blob_init(&b[i], i, IBV_FLOW_ATTR_FLAGS_DONT_TRAP);
		blob_udp(&b[i], 9000 + i);
		blob_count(&b[i], c);
		NEED(flow[i] = blob_flow(&b[i], r.qp));
	}
	send_udp(2, 9000, 10);
	send_udp(3, 9001, 10);
	WANT(ibv_read_counters(c, v, 3, 0), EINVAL); /* the highest index is 3 */
	WANT(ibv_read_counters(c, v, 5, 0), 0);
	WANT(v[0], 0);
	WANT(v[1], 10);
	WANT(v[2], 0);
	WANT(v[3], 5 * frame_bytes(10) + 5);
	WANT(v[4], 0);
	for (int i = 0; i < 2; i++)
		WANT(ibv_destroy_flow(flow[i]), 0);
	WANT(ibv_destroy_counters(c), 0);
	rig_down(&r);
}

void case_counters(void)
{
	struct rig r;
	struct blob b;
	uint64_t v[2];
	rig_up(&r);
	struct ibv_counters_init_attr init = {.comp_mask = 1};
	WANT_NULL(ibv_create_counters(r.context, &init), EOPNOTSUPP);
	init.comp_mask = 0;
	struct ibv_counters *c = ibv_create_counters(r.context, &init);
	NEED(c);
	WANT(ibv_read_counters(c, v, 2, 0), EINVAL); /* not bound */
	blob_init(&b, 0, 0);
	blob_count(&b, c);
	WANT(attach(c, 2, 0), ENOTSUP);
	struct ibv_counter_attach_attr a = {.comp_mask = 1};
	WANT(ibv_attach_counters_point_flow(c, &a, NULL), EOPNOTSUPP);
	WANT(attach(c, IBV_COUNTER_PACKETS, 0), 0);
	struct ibv_flow *flow = blob_flow(&b, r.qp);
	NEED(flow);
	WANT(attach(c, IBV_COUNTER_BYTES, 1), EBUSY);
	a.comp_mask = 0;
	WANT(ibv_attach_counters_point_flow(c, &a, flow), ENOTSUP);
	WANT(ibv_read_counters(c, v, 1, 2), EINVAL);
	WANT(ibv_read_counters(c, v, 0, 0), EINVAL);
	WANT(ibv_destroy_flow(flow), 0);
	WANT(attach(c, IBV_COUNTER_BYTES, 1), 0);
	WANT(ibv_destroy_counters(c), 0);
	rig_down(&r);
}

/* refused: the flow with one more spec must fail. */
static void refused(struct rig *r, struct blob b, const void *spec, uint16_t size, int want)
{
	blob_add(&b, spec, size);
	WANT_NULL(blob_flow(&b, r->qp), want);
}

void case_specs(void)
{
	struct rig r;
	struct blob b, x;
	rig_up(&r);
	blob_init(&b, 0, 0);
	struct ibv_flow_spec_ipv4_ext ext = {.type = IBV_FLOW_SPEC_IPV4_EXT, .size = sizeof(ext)};
	ext.mask.ttl = 1;
	refused(&r, b, &ext, sizeof(ext), EOPNOTSUPP);
	ext.mask.ttl = 0;
	ext.mask.flags = 1;
	refused(&r, b, &ext, sizeof(ext), EOPNOTSUPP);
	ext.mask.flags = 0;
	struct ibv_flow_spec_ipv6 ip6 = {.type = IBV_FLOW_SPEC_IPV6, .size = sizeof(ip6)};
	ip6.mask.hop_limit = 1;
	refused(&r, b, &ip6, sizeof(ip6), EOPNOTSUPP);
	ip6.mask.hop_limit = 0;
	ip6.val.flow_label = htonl(1 << 20); /* 20 bits, in the value too */
	refused(&r, b, &ip6, sizeof(ip6), EINVAL);
	struct ibv_flow_spec_tunnel vxlan = {.type = IBV_FLOW_SPEC_VXLAN_TUNNEL, .size = sizeof(vxlan)};
	vxlan.mask.tunnel_id = htonl(1 << 24);
	refused(&r, b, &vxlan, sizeof(vxlan), EINVAL);
	struct ibv_flow_spec_gre gre = {.type = IBV_FLOW_SPEC_GRE, .size = sizeof(gre)};
	gre.mask.c_ks_res0_ver = 1;
	refused(&r, b, &gre, sizeof(gre), EOPNOTSUPP);
	struct ibv_flow_spec_esp esp = {.type = IBV_FLOW_SPEC_ESP, .size = sizeof(esp)};
	esp.mask.seq = 1;
	refused(&r, b, &esp, sizeof(esp), EOPNOTSUPP);
	struct ibv_flow_spec_action_tag tag = {.type = IBV_FLOW_SPEC_ACTION_TAG, .size = sizeof(tag), .tag_id = 1 << 24};
	refused(&r, b, &tag, sizeof(tag), EINVAL);
	struct ibv_flow_spec_eth eth = {.type = IBV_FLOW_SPEC_ETH};

	/* Contradictions: TCP in a packet whose protocol is UDP, IPv4 under IPv6's Ethertype. */
	x = b;
	ext.val.proto = 17;
	ext.mask.proto = 0xff;
	blob_add(&x, &ext, sizeof(ext));
	struct ibv_flow_spec_tcp_udp tcp = {.type = IBV_FLOW_SPEC_TCP, .size = sizeof(tcp)};
	refused(&r, x, &tcp, sizeof(tcp), EINVAL);
	x = b;
	eth.size = sizeof(eth);
	eth.mask.ether_type = htons(0xff00); /* in part, above an IP spec */
	blob_add(&x, &eth, sizeof(eth));
	blob_udp(&x, 1);
	WANT_NULL(blob_flow(&x, r.qp), EINVAL);
	x = b;
	eth.val.ether_type = htons(0x86dd);
	eth.mask.ether_type = 0xffff;
	blob_add(&x, &eth, sizeof(eth));
	struct ibv_flow_spec_ipv4 ip = {.type = IBV_FLOW_SPEC_IPV4, .size = sizeof(ip)};
	refused(&r, x, &ip, sizeof(ip), EINVAL);

	struct ibv_counters *c = packets_and_bytes(r.context);
	x = b;
	blob_count(&x, c);
	blob_count(&x, c);
	WANT_NULL(blob_flow(&x, r.qp), EINVAL);
	x = b;
	for (int i = 0; i < 11; i++)
		blob_add(&x, &(struct ibv_flow_spec_action_drop){IBV_FLOW_SPEC_ACTION_DROP, 8}, 8);
	WANT_NULL(blob_flow(&x, r.qp), EINVAL);
	WANT(ibv_destroy_counters(c), 0);
	rig_down(&r);
}

static struct ibv_flow *with(struct rig *r, int type, uint16_t priority, uint8_t port, uint32_t flags)
{
	struct blob b;
	blob_init(&b, priority, flags);
	b.attr.type = type;
	b.attr.port = port;
	return blob_flow(&b, r->qp);
}

void case_attributes(void)
{
	struct rig r;
	rig_up(&r);
	WANT_NULL(with(&r, IBV_FLOW_ATTR_NORMAL, 16, 1, 0), ENOMEM);
	WANT_NULL(with(&r, IBV_FLOW_ATTR_NORMAL, 0, 2, 0), EINVAL);
	WANT_NULL(with(&r, IBV_FLOW_ATTR_NORMAL, 0, 0, 0), EINVAL);
	WANT_NULL(with(&r, IBV_FLOW_ATTR_NORMAL, 0, 1, 1), EINVAL);
	WANT_NULL(with(&r, IBV_FLOW_ATTR_NORMAL, 0, 1, 8), EINVAL);
	WANT_NULL(with(&r, IBV_FLOW_ATTR_ALL_DEFAULT, 0, 1, IBV_FLOW_ATTR_FLAGS_DONT_TRAP), EINVAL);
	WANT_NULL(with(&r, IBV_FLOW_ATTR_MC_DEFAULT, 0, 1, IBV_FLOW_ATTR_FLAGS_EGRESS), EINVAL);
	WANT_NULL(with(&r, 4, 0, 1, 0), EOPNOTSUPP);
	WANT_NULL(with(&r, IBV_FLOW_ATTR_NORMAL, 0, 1, IBV_FLOW_ATTR_FLAGS_DONT_TRAP | IBV_FLOW_ATTR_FLAGS_EGRESS), EOPNOTSUPP);

	struct ibv_qp_init_attr a = qp_attr(r.cq, IBV_QPT_RC);
	struct ibv_qp *raw = r.qp;
	NEED(r.qp = ibv_create_qp(r.pd, &a));
	WANT_NULL(with(&r, IBV_FLOW_ATTR_NORMAL, 0, 1, 0), EINVAL);
	WANT(ibv_destroy_qp(r.qp), 0);
	r.qp = raw;

	/* The types that mlx5 lets not count: accepted, and the read shows it. */
	static const int types[] = {IBV_FLOW_ATTR_ALL_DEFAULT, IBV_FLOW_ATTR_MC_DEFAULT, IBV_FLOW_ATTR_SNIFFER};
	for (int i = 0; i < 3; i++) {
		uint64_t v[2];
		struct blob b;
		struct ibv_counters *c = packets_and_bytes(r.context);
		blob_init(&b, 0, 0);
		b.attr.type = types[i];
		blob_count(&b, c);
		struct ibv_flow *flow = blob_flow(&b, r.qp);
		NEED(flow);
		WANT(ibv_read_counters(c, v, 2, 0), EFAULT);
		WANT(ibv_destroy_flow(flow), 0);
		WANT(ibv_destroy_counters(c), 0);
	}
	rig_down(&r);
}
