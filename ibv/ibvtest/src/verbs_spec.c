/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_spec.c: from the specs of a flow to a rule of the NIC, as mlx5's parse_flow_attr
 * does it:
 *
 *   - a mask on a field behind the last one that the device matches is EOPNOTSUPP;
 *   - TCP, UDP and GRE specs require their IP protocol, and an IP spec its Ethertype:
 *     a contradiction is EINVAL;
 *   - a second COUNT is EINVAL, a tag has 24 bits;
 *   - a bit of a value that its mask lacks is EINVAL (mlx5_core's check_valid_spec, here nic_rule_add).
 *
 * Stricter than mlx5: sizes must equal the sizes of the structures. */
#include <arpa/inet.h>
#include <errno.h>
#include <net/ethernet.h>
#include <netinet/in.h>
#include <string.h>

#include "verbs_flow_spec.h"
#include "verbs_soft.h"

#define MAX_SPECS 10 /* IB_FLOW_SPEC_SUPPORT_LAYERS */
#define ETHERTYPE_MPLS 0x8847
#define ETHERTYPE_MPLS_MULTICAST 0x8848

/* A copy of one spec, since specs are unaligned in the blob. */
union spec {
	struct soft_spec_header header;
	struct ibv_flow_spec_eth eth;
	struct ibv_flow_spec_ipv4 ipv4;
	struct ibv_flow_spec_ipv4_ext ipv4_ext;
	struct ibv_flow_spec_ipv6 ipv6;
	struct ibv_flow_spec_esp esp;
	struct ibv_flow_spec_tcp_udp tcp_udp;
	struct ibv_flow_spec_gre gre;
	struct ibv_flow_spec_mpls mpls;
	struct ibv_flow_spec_tunnel tunnel;
	struct ibv_flow_spec_action_tag tag;
	struct ibv_flow_spec_counter_action count;
};

/* One header stack of the rule, outer or inner. */
struct layer {
	struct nic_layer *value, *mask;
};

/* SET puts a masked number into a field of the rule. */
#define SET(to, field, v, m) ((to).mask->field = (m), (to).value->field = (v))

static void set_bytes(uint8_t *value, uint8_t *mask, const void *v, const void *m, size_t n)
{
	memcpy(mask, m, n);
	memcpy(value, v, n);
}

static void want(struct layer l, uint32_t present)
{
	l.mask->present |= present;
	l.value->present |= present;
}

static int set_protocol(struct layer l, uint8_t v, uint8_t m)
{
	if (!m)
		return 0;
	if (l.mask->ip_protocol && (l.mask->ip_protocol != m || l.value->ip_protocol != v))
		return EINVAL;
	SET(l, ip_protocol, v, m);
	return 0;
}

static int parse_eth(const struct ibv_flow_spec_eth *s, struct layer l)
{
	uint16_t tag = ntohs(s->mask.vlan_tag);
	set_bytes(l.value->dmac, l.mask->dmac, s->val.dst_mac, s->mask.dst_mac, 6);
	set_bytes(l.value->smac, l.mask->smac, s->val.src_mac, s->mask.src_mac, 6);
	SET(l, ether_type, ntohs(s->val.ether_type), ntohs(s->mask.ether_type));
	if (tag) {
		want(l, NIC_CVLAN);
		SET(l, tci[0], ntohs(s->val.vlan_tag), tag);
	}
	return 0;
}

static void parse_ipv4_addresses(uint32_t src, uint32_t src_mask, uint32_t dst, uint32_t dst_mask, struct layer l)
{
	want(l, NIC_IPV4);
	set_bytes(l.value->src_ip, l.mask->src_ip, &src, &src_mask, 4);
	set_bytes(l.value->dst_ip, l.mask->dst_ip, &dst, &dst_mask, 4);
}

static int parse_ipv4_ext(const struct ibv_flow_spec_ipv4_ext *s, struct layer l)
{
	if (s->mask.ttl || s->mask.flags)
		return EOPNOTSUPP;
	parse_ipv4_addresses(s->val.src_ip, s->mask.src_ip, s->val.dst_ip, s->mask.dst_ip, l);
	SET(l, tos, s->val.tos, s->mask.tos);
	return set_protocol(l, s->val.proto, s->mask.proto);
}

static int parse_ipv6(const struct ibv_flow_spec_ipv6 *s, struct layer l)
{
	if (s->mask.hop_limit)
		return EOPNOTSUPP;
	if ((ntohl(s->mask.flow_label) | ntohl(s->val.flow_label)) >> 20)
		return EINVAL;
	want(l, NIC_IPV6);
	set_bytes(l.value->src_ip, l.mask->src_ip, s->val.src_ip, s->mask.src_ip, 16);
	set_bytes(l.value->dst_ip, l.mask->dst_ip, s->val.dst_ip, s->mask.dst_ip, 16);
	SET(l, flow_label, ntohl(s->val.flow_label), ntohl(s->mask.flow_label));
	SET(l, tos, s->val.traffic_class, s->mask.traffic_class);
	return set_protocol(l, s->val.next_hdr, s->mask.next_hdr);
}

static int parse_ports(const struct ibv_flow_spec_tcp_udp *s, struct layer l, uint32_t present, uint8_t protocol)
{
	want(l, present);
	SET(l, sport, ntohs(s->val.src_port), ntohs(s->mask.src_port));
	SET(l, dport, ntohs(s->val.dst_port), ntohs(s->mask.dst_port));
	return set_protocol(l, protocol, 0xff);
}

static int parse_gre(const struct ibv_flow_spec_gre *s, struct nic_match *m, struct layer l)
{
	if (s->mask.c_ks_res0_ver)
		return EOPNOTSUPP;
	m->mask.gre_protocol = ntohs(s->mask.protocol);
	m->value.gre_protocol = ntohs(s->val.protocol);
	m->mask.gre_key = ntohl(s->mask.key);
	m->value.gre_key = ntohl(s->val.key);
	return set_protocol(l, IPPROTO_GRE, 0xff);
}

/* Where the label stack lies is said by the spec before. */
static int parse_mpls(const struct ibv_flow_spec_mpls *s, struct nic_match *m, struct layer l, uint32_t before)
{
	uint32_t v = ntohl(s->val.label), mask = ntohl(s->mask.label);
	uint32_t in = before == IBV_FLOW_SPEC_GRE ? NIC_MPLS_GRE : before == IBV_FLOW_SPEC_UDP ? NIC_MPLS_UDP : 0;
	if (!in) {
		want(l, NIC_MPLS);
		SET(l, mpls, v, mask);
		return 0;
	}
	m->mask.tunnel |= in;
	m->value.tunnel |= in;
	m->mask.mpls = mask;
	m->value.mpls = v;
	return 0;
}

static size_t size_of(uint32_t type)
{
	switch (type) {
	case IBV_FLOW_SPEC_ETH:
		return sizeof(struct ibv_flow_spec_eth);
	case IBV_FLOW_SPEC_IPV4:
		return sizeof(struct ibv_flow_spec_ipv4);
	case IBV_FLOW_SPEC_IPV4_EXT:
		return sizeof(struct ibv_flow_spec_ipv4_ext);
	case IBV_FLOW_SPEC_IPV6:
		return sizeof(struct ibv_flow_spec_ipv6);
	case IBV_FLOW_SPEC_ESP:
		return sizeof(struct ibv_flow_spec_esp);
	case IBV_FLOW_SPEC_TCP:
	case IBV_FLOW_SPEC_UDP:
		return sizeof(struct ibv_flow_spec_tcp_udp);
	case IBV_FLOW_SPEC_VXLAN_TUNNEL:
		return sizeof(struct ibv_flow_spec_tunnel);
	case IBV_FLOW_SPEC_GRE:
		return sizeof(struct ibv_flow_spec_gre);
	case IBV_FLOW_SPEC_MPLS:
		return sizeof(struct ibv_flow_spec_mpls);
	case IBV_FLOW_SPEC_ACTION_TAG:
		return sizeof(struct ibv_flow_spec_action_tag);
	case IBV_FLOW_SPEC_ACTION_DROP:
		return sizeof(struct ibv_flow_spec_action_drop);
	case IBV_FLOW_SPEC_ACTION_HANDLE: /* a pointer, too */
	case IBV_FLOW_SPEC_ACTION_COUNT:
		return sizeof(struct ibv_flow_spec_counter_action);
	default:
		return 0;
	}
}

static int parse_action(const union spec *s, struct verbs_flow_parts *parts)
{
	switch (s->header.type) {
	case IBV_FLOW_SPEC_ACTION_TAG:
		parts->tagged = true;
		return s->tag.tag_id >= 1 << 24 ? EINVAL : 0;
	case IBV_FLOW_SPEC_ACTION_DROP:
		parts->dropped = true;
		return 0;
	case IBV_FLOW_SPEC_ACTION_HANDLE: /* no verb here makes such an action */
		return EOPNOTSUPP;
	default: /* COUNT: size_of knows no other */
		parts->counters = s->count.counters;
		return parts->counts++ || !parts->counters ? EINVAL : 0;
	}
}

static int parse_spec(const union spec *s, uint32_t before, struct verbs_flow_parts *parts)
{
	struct nic_match *m = &parts->rule.match;
	bool inner = s->header.type & IBV_FLOW_SPEC_INNER;
	struct layer l = {inner ? &m->value.inner : &m->value.outer, inner ? &m->mask.inner : &m->mask.outer};
	switch (s->header.type & ~IBV_FLOW_SPEC_INNER) {
	case IBV_FLOW_SPEC_ETH:
		return parse_eth(&s->eth, l);
	case IBV_FLOW_SPEC_IPV4:
		parse_ipv4_addresses(s->ipv4.val.src_ip, s->ipv4.mask.src_ip, s->ipv4.val.dst_ip, s->ipv4.mask.dst_ip, l);
		return 0;
	case IBV_FLOW_SPEC_IPV4_EXT:
		return parse_ipv4_ext(&s->ipv4_ext, l);
	case IBV_FLOW_SPEC_IPV6:
		return parse_ipv6(&s->ipv6, l);
	case IBV_FLOW_SPEC_ESP:
		if (s->esp.mask.seq)
			return EOPNOTSUPP;
		SET(l, esp_spi, ntohl(s->esp.val.spi), ntohl(s->esp.mask.spi));
		return 0;
	case IBV_FLOW_SPEC_TCP:
		return parse_ports(&s->tcp_udp, l, NIC_TCP, IPPROTO_TCP);
	case IBV_FLOW_SPEC_UDP:
		return parse_ports(&s->tcp_udp, l, NIC_UDP, IPPROTO_UDP);
	case IBV_FLOW_SPEC_GRE:
		return inner ? EINVAL : parse_gre(&s->gre, m, l);
	case IBV_FLOW_SPEC_MPLS:
		return parse_mpls(&s->mpls, m, l, before);
	case IBV_FLOW_SPEC_VXLAN_TUNNEL:
		if (inner || (ntohl(s->tunnel.mask.tunnel_id) | ntohl(s->tunnel.val.tunnel_id)) >> 24)
			return EINVAL;
		m->mask.vni = ntohl(s->tunnel.mask.tunnel_id);
		m->value.vni = ntohl(s->tunnel.val.tunnel_id);
		return 0;
	default:
		return parse_action(s, parts);
	}
}

/* The specs of an IP layer and of its Ethertype must agree (mlx5's is_valid_ethertype):
 * whole or not at all, unless MPLS is between the two. The last of each kind decides. */
static bool ethertypes_fit(const union spec *specs, unsigned n, uint32_t inner)
{
	uint16_t mask = 0, type = 0, ip = 0;
	for (unsigned i = 0; i < n; i++) {
		uint32_t kind = specs[i].header.type ^ inner;
		if (kind == IBV_FLOW_SPEC_ETH && specs[i].eth.mask.ether_type) {
			mask = specs[i].eth.mask.ether_type;
			type = ntohs(specs[i].eth.val.ether_type);
		} else if (kind == IBV_FLOW_SPEC_IPV4 || kind == IBV_FLOW_SPEC_IPV4_EXT) {
			ip = ETHERTYPE_IP;
		} else if (kind == IBV_FLOW_SPEC_IPV6) {
			ip = ETHERTYPE_IPV6;
		}
	}
	if (!mask || !ip)
		return true;
	return mask == 0xffff && (type == ip || type == ETHERTYPE_MPLS || type == ETHERTYPE_MPLS_MULTICAST);
}

/* By the first spec alone, as mlx5: such flows stand in a table behind the others. */
static bool multicast_only(const union spec *first)
{
	switch (first->header.type) {
	case IBV_FLOW_SPEC_IPV4:
		return IN_MULTICAST(ntohl(first->ipv4.val.dst_ip));
	case IBV_FLOW_SPEC_IPV4_EXT:
		return IN_MULTICAST(ntohl(first->ipv4_ext.val.dst_ip));
	case IBV_FLOW_SPEC_ETH:
		return first->eth.val.dst_mac[0] & first->eth.mask.dst_mac[0] & 1;
	default:
		return false;
	}
}

/* Copies the specs out of the blob: 0 or EINVAL. */
static int take(const struct ibv_flow_attr *attr, union spec *specs)
{
	const char *at = (const char *)(attr + 1);
	if (attr->num_of_specs > MAX_SPECS || attr->size < sizeof(*attr))
		return EINVAL;
	size_t left = attr->size - sizeof(*attr);
	for (unsigned i = 0; i < attr->num_of_specs; i++) {
		struct soft_spec_header h;
		if (left < sizeof(h))
			return EINVAL;
		memcpy(&h, at, sizeof(h));
		bool action = h.type >= IBV_FLOW_SPEC_ACTION_TAG; /* has no inner form */
		size_t size = size_of(action ? h.type : h.type & ~IBV_FLOW_SPEC_INNER);
		if (!size || h.size != size || left < size)
			return EINVAL;
		memset(&specs[i], 0, sizeof(specs[i]));
		memcpy(&specs[i], at, size);
		at += size;
		left -= size;
	}
	return left ? EINVAL : 0;
}

/* verbs_flow_counts_twice finds a second COUNT, which libmlx5 refuses before the kernel sees the flow. */
bool verbs_flow_counts_twice(const struct ibv_flow_attr *attr)
{
	union spec specs[MAX_SPECS];
	unsigned counts = 0;
	if (take(attr, specs))
		return false;
	for (unsigned i = 0; i < attr->num_of_specs; i++)
		counts += specs[i].header.type == IBV_FLOW_SPEC_ACTION_COUNT;
	return counts > 1;
}

int verbs_flow_parse(const struct ibv_flow_attr *attr, struct verbs_flow_parts *parts)
{
	union spec specs[MAX_SPECS];
	unsigned n = attr->num_of_specs;
	uint32_t before = 0;
	int err = take(attr, specs);
	if (!err && !(ethertypes_fit(specs, n, 0) && ethertypes_fit(specs, n, IBV_FLOW_SPEC_INNER)))
		err = EINVAL;
	for (unsigned i = 0; i < n && !err; i++) {
		err = parse_spec(&specs[i], before, parts);
		before = specs[i].header.type;
	}
	if (!err && n && multicast_only(&specs[0]) && !(attr->flags & IBV_FLOW_ATTR_FLAGS_DONT_TRAP))
		parts->rule.flags |= NIC_LAST;
	return err;
}
