/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_ib_spec.c: the specs of EX_CREATE_FLOW as struct fte_match_param: the checks of uverbs (kern_spec_to_ib_spec),
 * then the checks of mlx5_ib (parse_flow_attr, is_valid_attr). */
#include <arpa/inet.h>
#include <errno.h>
#include <net/ethernet.h>
#include <netinet/in.h>
#include <string.h>

#include "mlx5_ib_flow.h"

/* Bits of struct fte_match_param. */
enum {
	OUTER = 0,
	MISC = 512,
	INNER = 1024,
	MISC2 = 1536,

	ETHERTYPE_BIT = 0x30,
	FIRST_PRIO = 0x70,
	FIRST_CFI = 0x73,
	FIRST_VID = 0x74,
	IP_PROTOCOL = 0x80,
	IP_DSCP = 0x88,
	IP_ECN = 0x8e,
	CVLAN_TAG = 0x90,
	IP_VERSION = 0x93,
	TCP_SPORT = 0xa0,
	TCP_DPORT = 0xb0,
	UDP_SPORT = 0xe0,
	UDP_DPORT = 0xf0,

	GRE_PROTOCOL = MISC + 0x70,
	GRE_KEY = MISC + 0x80,
	VXLAN_VNI = MISC + 0xa0,
	OUTER_FLOW_LABEL = MISC + 0xec,
	INNER_FLOW_LABEL = MISC + 0x10c,
	OUTER_ESP_SPI = MISC + 0x180,
	FIRST_MPLS = MISC2 + 0x00,
	INNER_FIRST_MPLS = MISC2 + 0x20,
	MPLS_OVER_GRE = MISC2 + 0x40,
	MPLS_OVER_UDP = MISC2 + 0x60,

	/* bytes of a header section */
	SMAC = 0,
	DMAC = 8,
	SRC_IP = 32,
	DST_IP = 48,
};

union filter {
	struct ib_uverbs_flow_eth_filter eth;
	struct ib_uverbs_flow_ipv4_filter ipv4;
	struct ib_uverbs_flow_ipv6_filter ipv6;
	struct ib_uverbs_flow_tcp_udp_filter tcp_udp;
	struct ib_uverbs_flow_tunnel_filter tunnel;
	struct ib_uverbs_flow_spec_esp_filter esp;
	struct ib_uverbs_flow_gre_filter gre;
	struct ib_uverbs_flow_mpls_filter mpls;
};

/* A copy of one spec. */
struct one {
	uint32_t type;
	union filter val, mask;
	uint32_t action; /* tag or handle */
};

static size_t filter_size(uint32_t type)
{
	switch (type & ~IB_FLOW_SPEC_INNER) {
	case IB_FLOW_SPEC_ETH: return sizeof(struct ib_uverbs_flow_eth_filter);
	case IB_FLOW_SPEC_IPV4: return sizeof(struct ib_uverbs_flow_ipv4_filter);
	case IB_FLOW_SPEC_IPV6: return offsetof(struct ib_uverbs_flow_ipv6_filter, reserved);
	case IB_FLOW_SPEC_TCP:
	case IB_FLOW_SPEC_UDP: return sizeof(struct ib_uverbs_flow_tcp_udp_filter);
	case IB_FLOW_SPEC_VXLAN_TUNNEL: return type & IB_FLOW_SPEC_INNER ? 0 : sizeof(struct ib_uverbs_flow_tunnel_filter);
	case IB_FLOW_SPEC_ESP: return sizeof(struct ib_uverbs_flow_spec_esp_filter);
	case IB_FLOW_SPEC_GRE: return sizeof(struct ib_uverbs_flow_gre_filter);
	case IB_FLOW_SPEC_MPLS: return sizeof(struct ib_uverbs_flow_mpls_filter);
	default: return 0;
	}
}

/* A filter of the caller may be longer than ours if its mask is zero there. */
static int copy_filter(const uint8_t *at, size_t size, size_t known, struct one *to)
{
	for (size_t i = known; i < size; i++)
		if (at[size + i])
			return EINVAL;
	if (size > known)
		size = known;
	memcpy(&to->val, at, size);
	return 0;
}

static int read_spec(const uint8_t *at, struct one *to, size_t *size)
{
	struct ib_uverbs_flow_spec_hdr h;
	struct ib_uverbs_flow_spec_action a;
	memcpy(&h, at, sizeof(h));
	memset(to, 0, sizeof(*to));
	to->type = h.type;
	*size = h.size;
	if (h.type >= IB_FLOW_SPEC_ACTION_TAG) {
		if (h.size != (h.type == IB_FLOW_SPEC_ACTION_DROP ? sizeof(h) : sizeof(a)) || h.type > IB_FLOW_SPEC_ACTION_COUNT)
			return EINVAL;
		memcpy(&a, at, h.size);
		to->action = h.size == sizeof(a) ? a.value : 0;
		return 0;
	}
	size_t n = (h.size - sizeof(h)) / 2, known = filter_size(h.type);
	if (!known || !n || n % 4)
		return EINVAL;
	int err = copy_filter(at + sizeof(h), n, known, to);
	memcpy(&to->mask, at + sizeof(h) + n, n < known ? n : known);
	return err;
}

static int in_range(const struct one *s)
{
	switch (s->type & ~IB_FLOW_SPEC_INNER) {
	case IB_FLOW_SPEC_IPV6:
		return (ntohl(s->mask.ipv6.flow_label) | ntohl(s->val.ipv6.flow_label)) >> 20 ? EINVAL : 0;
	case IB_FLOW_SPEC_VXLAN_TUNNEL:
		return (ntohl(s->mask.tunnel.tunnel_id) | ntohl(s->val.tunnel.tunnel_id)) >> 24 ? EINVAL : 0;
	default:
		return 0;
	}
}

int mlx5_ib_convert_specs(struct uv_file *file, const struct ib_uverbs_flow_attr *attr, const uint8_t *specs,
			  struct mlx5_flow_spec *spec)
{
	struct one s;
	struct uv_object *o;
	size_t size;
	for (unsigned i = 0; i < attr->num_of_specs; i++, specs += size) {
		int err = read_spec(specs, &s, &size);
		if (!err)
			err = in_range(&s);
		if (err)
			return err;
		if (s.type == IB_FLOW_SPEC_ACTION_HANDLE) /* this kernel makes no flow actions: no handle is one */
			return EINVAL;
		if (s.type != IB_FLOW_SPEC_ACTION_COUNT)
			continue;
		if (uv_object_get(file, UVERBS_OBJECT_COUNTERS, s.action, &o))
			return EINVAL;
		spec->counters[spec->counts++] = (struct uv_counters *)o;
	}
	return 0;
}

/* Where a spec is written: a header section of mask and value, at the bit base. */
struct to {
	struct mlx5_flow_spec *spec;
	unsigned base;
};

static void set(struct to t, unsigned bit, unsigned width, uint32_t mask, uint32_t value)
{
	uint32_t ones = width == 32 ? UINT32_MAX : (1u << width) - 1;
	mlx5_set(t.spec->mask, t.base + bit, width, mask & ones);
	mlx5_set(t.spec->value, t.base + bit, width, value & ones);
}

static void set_bytes(struct to t, unsigned byte, const void *mask, const void *value, size_t n)
{
	memcpy(t.spec->mask + t.base / 8 + byte, mask, n);
	memcpy(t.spec->value + t.base / 8 + byte, value, n);
}

static int set_proto(struct to t, uint8_t mask, uint8_t value)
{
	uint8_t m = mlx5_get(t.spec->mask, t.base + IP_PROTOCOL, 8), v = mlx5_get(t.spec->value, t.base + IP_PROTOCOL, 8);
	if (!mask)
		return 0;
	if (m)
		return mask != m || value != v ? EINVAL : 0;
	set(t, IP_PROTOCOL, 8, mask, value);
	return 0;
}

static void parse_eth(const struct one *s, struct to t)
{
	uint16_t tag = ntohs(s->mask.eth.vlan_tag), value = ntohs(s->val.eth.vlan_tag);
	set_bytes(t, DMAC, s->mask.eth.dst_mac, s->val.eth.dst_mac, 6);
	set_bytes(t, SMAC, s->mask.eth.src_mac, s->val.eth.src_mac, 6);
	if (tag) {
		set(t, CVLAN_TAG, 1, 1, 1);
		set(t, FIRST_VID, 12, tag, value);
		set(t, FIRST_CFI, 1, tag >> 12, value >> 12);
		set(t, FIRST_PRIO, 3, tag >> 13, value >> 13);
	}
	set(t, ETHERTYPE_BIT, 16, ntohs(s->mask.eth.ether_type), ntohs(s->val.eth.ether_type));
}

static int parse_ip(struct to t, uint32_t version, uint8_t tos_mask, uint8_t tos, uint8_t proto_mask, uint8_t proto)
{
	set(t, IP_VERSION, 4, 0xf, version);
	set(t, IP_ECN, 2, tos_mask, tos);
	set(t, IP_DSCP, 6, tos_mask >> 2, tos >> 2);
	return set_proto(t, proto_mask, proto);
}

static int parse_ipv4(const struct ib_uverbs_flow_ipv4_filter *m, const struct ib_uverbs_flow_ipv4_filter *v, struct to t)
{
	if (m->ttl || m->flags)
		return EOPNOTSUPP;
	set_bytes(t, SRC_IP + 12, &m->src_ip, &v->src_ip, 4);
	set_bytes(t, DST_IP + 12, &m->dst_ip, &v->dst_ip, 4);
	return parse_ip(t, 4, m->tos, v->tos, m->proto, v->proto);
}

static int parse_ipv6(const struct ib_uverbs_flow_ipv6_filter *m, const struct ib_uverbs_flow_ipv6_filter *v, struct to t)
{
	struct to misc = {t.spec, 0};
	if (m->hop_limit)
		return EOPNOTSUPP;
	set_bytes(t, SRC_IP, m->src_ip, v->src_ip, 16);
	set_bytes(t, DST_IP, m->dst_ip, v->dst_ip, 16);
	set(misc, t.base == INNER ? INNER_FLOW_LABEL : OUTER_FLOW_LABEL, 20, ntohl(m->flow_label), ntohl(v->flow_label));
	return parse_ip(t, 6, m->traffic_class, v->traffic_class, m->next_hdr, v->next_hdr);
}

static int parse_ports(const struct one *s, struct to t, unsigned sport, unsigned dport, uint8_t proto)
{
	const struct ib_uverbs_flow_tcp_udp_filter *m = &s->mask.tcp_udp, *v = &s->val.tcp_udp;
	int err = set_proto(t, 0xff, proto);
	if (err)
		return err;
	set(t, sport, 16, ntohs(m->src_port), ntohs(v->src_port));
	set(t, dport, 16, ntohs(m->dst_port), ntohs(v->dst_port));
	return 0;
}

static int parse_gre(const struct one *s, struct to t)
{
	struct to misc = {t.spec, 0};
	int err = s->mask.gre.c_ks_res0_ver ? EOPNOTSUPP : set_proto(t, 0xff, IPPROTO_GRE);
	if (err)
		return err;
	set(misc, GRE_PROTOCOL, 16, ntohs(s->mask.gre.protocol), ntohs(s->val.gre.protocol));
	set(misc, GRE_KEY, 32, ntohl(s->mask.gre.key), ntohl(s->val.gre.key));
	return 0;
}

static int parse_spec(const struct one *s, uint32_t before, struct mlx5_flow_spec *spec)
{
	bool inner = s->type & IB_FLOW_SPEC_INNER;
	struct to t = {spec, inner ? INNER : OUTER}, misc = {spec, 0};
	switch (s->type & ~IB_FLOW_SPEC_INNER) {
	case IB_FLOW_SPEC_ETH: parse_eth(s, t); return 0;
	case IB_FLOW_SPEC_IPV4: return parse_ipv4(&s->mask.ipv4, &s->val.ipv4, t);
	case IB_FLOW_SPEC_IPV6: return parse_ipv6(&s->mask.ipv6, &s->val.ipv6, t);
	case IB_FLOW_SPEC_TCP: return parse_ports(s, t, TCP_SPORT, TCP_DPORT, IPPROTO_TCP);
	case IB_FLOW_SPEC_UDP: return parse_ports(s, t, UDP_SPORT, UDP_DPORT, IPPROTO_UDP);
	case IB_FLOW_SPEC_GRE: return parse_gre(s, t);
	case IB_FLOW_SPEC_ESP:
		if (s->mask.esp.seq)
			return EOPNOTSUPP;
		set(misc, OUTER_ESP_SPI, 32, ntohl(s->mask.esp.spi), ntohl(s->val.esp.spi));
		return 0;
	case IB_FLOW_SPEC_MPLS:
		set(misc,
		    before == IB_FLOW_SPEC_UDP   ? MPLS_OVER_UDP
		    : before == IB_FLOW_SPEC_GRE ? MPLS_OVER_GRE
		    : inner			 ? INNER_FIRST_MPLS
						 : FIRST_MPLS,
		    32, ntohl(s->mask.mpls.label), ntohl(s->val.mpls.label));
		return 0;
	case IB_FLOW_SPEC_VXLAN_TUNNEL:
		set(misc, VXLAN_VNI, 24, ntohl(s->mask.tunnel.tunnel_id), ntohl(s->val.tunnel.tunnel_id));
		return 0;
	case IB_FLOW_SPEC_ACTION_TAG:
		spec->tagged = true;
		return s->action >> 24 ? EINVAL : 0;
	case IB_FLOW_SPEC_ACTION_DROP: spec->drop = true; return 0;
	default: return 0; /* COUNT */
	}
}

/* is_valid_ethertype: an Ethertype above an IP spec is whole, and names the IP version or MPLS. The last of each kind
 * decides. */
struct ethertype {
	bool has, whole;
	uint16_t type;
	uint32_t ip;
};

static void note_ethertype(struct ethertype *e, const struct one *s, uint32_t inner)
{
	if (s->type == (IB_FLOW_SPEC_ETH | inner) && s->mask.eth.ether_type) {
		e->has = true;
		e->whole = s->mask.eth.ether_type == 0xffff;
		e->type = ntohs(s->val.eth.ether_type);
	} else if (s->type == (IB_FLOW_SPEC_IPV4 | inner) || s->type == (IB_FLOW_SPEC_IPV6 | inner)) {
		e->ip = s->type & ~inner;
	}
}

static bool valid_ethertype(const struct ethertype *e)
{
	if (!e->has || !e->ip)
		return true;
	return e->whole && (e->type == (e->ip == IB_FLOW_SPEC_IPV4 ? ETHERTYPE_IP : ETHERTYPE_IPV6) || e->type == 0x8847 ||
			    e->type == 0x8848);
}

static bool multicast_only(const struct one *first)
{
	if (first->type == IB_FLOW_SPEC_IPV4)
		return IN_MULTICAST(ntohl(first->val.ipv4.dst_ip));
	return first->type == IB_FLOW_SPEC_ETH && (first->mask.eth.dst_mac[0] & first->val.eth.dst_mac[0] & 1);
}

int mlx5_ib_parse_specs(const struct ib_uverbs_flow_attr *attr, const uint8_t *specs, struct mlx5_flow_spec *spec)
{
	struct ethertype outer = {0}, inner = {0};
	const uint8_t *at = specs;
	uint32_t before = 0;
	struct one s;
	size_t size;
	int err = 0;
	for (unsigned i = 0; i < attr->num_of_specs; i++, at += size) {
		(void)read_spec(at, &s, &size);
		note_ethertype(&outer, &s, 0);
		note_ethertype(&inner, &s, IB_FLOW_SPEC_INNER);
		if (!i)
			spec->multicast_only = multicast_only(&s);
	}
	if (!valid_ethertype(&outer) || !valid_ethertype(&inner))
		return EINVAL;
	for (unsigned i = 0; i < attr->num_of_specs && !err; i++, specs += size) {
		(void)read_spec(specs, &s, &size);
		err = parse_spec(&s, before, spec);
		before = s.type;
	}
	return !err && spec->counts > 1 ? EINVAL : err;
}
