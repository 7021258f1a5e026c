/* SPDX-License-Identifier: Apache-2.0
 *
 * nic_parse.c: a frame's headers as a struct nic_key. It follows the package comment of
 * dataplane/flow rule by rule; a test compares it with internal/oracle.
 */
#include <string.h>

#include "nic.h"

enum {
	ETHERTYPE_IPV4 = 0x0800,
	ETHERTYPE_CTAG = 0x8100,
	ETHERTYPE_STAG = 0x88a8,
	ETHERTYPE_IPV6 = 0x86dd,
	ETHERTYPE_MPLS = 0x8847,
	ETHERTYPE_MPLS_MULTICAST = 0x8848,
	ETHERTYPE_BRIDGED = 0x6558,

	PORT_VXLAN = 4789,
	PORT_MPLS = 6635,

	MAX_EXTENSIONS = 8,
};

/* cursor walks a frame of which only the first bytes are at hand. */
struct cursor {
	const uint8_t *p;
	const uint8_t *held; /* the end of the bytes in memory */
	unsigned missing;    /* bytes of the frame behind held */
	int cut;             /* a header lay there */
};

/* there: are n more bytes in the frame, and at hand? */
static int there(struct cursor *c, unsigned n)
{
	unsigned left = c->held - c->p;

	if (n <= left)
		return 1;
	if (n <= left + c->missing)
		c->cut = 1;
	return 0;
}

static uint16_t be16(const uint8_t *p)
{
	return p[0] << 8 | p[1];
}

static uint32_t be32(const uint8_t *p)
{
	return (uint32_t)be16(p) << 16 | be16(p + 2);
}

/* parse is one walk: layer is where headers go now; key is NULL inside a tunnel, where
 * no further tunnel is looked for. */
struct parse {
	struct cursor c;
	struct nic_layer *layer;
	struct nic_key *key;
	int first; /* a fragment at offset 0, of room bytes above IP; padding may follow it */
	int room;
};

static void parse_frame(struct parse *s);
static void parse_network(struct parse *s, uint16_t type);

static void enter_tunnel(struct parse *s)
{
	s->layer = &s->key->inner;
	s->key = NULL;
}

/* At the UDP length. */
static void parse_vxlan(struct parse *s)
{
	const uint8_t *vxlan = s->c.p + 4;

	if (!there(&s->c, 4 + 8))
		return;
	s->key->tunnel |= NIC_VXLAN;
	s->key->vni = be32(vxlan + 4) >> 8;
	s->c.p = vxlan + 8;
	enter_tunnel(s);
	parse_frame(s);
}

static void parse_mpls_tunnel(struct parse *s, uint32_t kind)
{
	if (!there(&s->c, 4))
		return;
	s->key->tunnel |= kind;
	s->key->mpls = be32(s->c.p);
}

static void parse_gre(struct parse *s)
{
	static const struct {
		uint16_t flag;
		uint32_t bit;
	} words[] = { { 0x8000, NIC_GRE_CSUM }, { 0x2000, NIC_GRE_KEY }, { 0x1000, NIC_GRE_SEQ } };
	uint32_t tunnel = NIC_GRE, gre_key = 0;
	uint16_t flags, type;

	if (!there(&s->c, 4))
		return;
	flags = be16(s->c.p);
	type = be16(s->c.p + 2);
	if (flags & 0x4007) /* routing, or a version but 0 */
		return;
	s->c.p += 4;
	for (unsigned i = 0; i < sizeof words / sizeof *words; i++) {
		if (!(flags & words[i].flag))
			continue;
		if (!there(&s->c, 4))
			return;
		tunnel |= words[i].bit;
		if (words[i].bit == NIC_GRE_KEY)
			gre_key = be32(s->c.p);
		s->c.p += 4;
	}
	s->key->tunnel |= tunnel;
	s->key->gre_key = gre_key;
	s->key->gre_protocol = type;
	if (type == ETHERTYPE_MPLS) {
		parse_mpls_tunnel(s, NIC_MPLS_GRE);
		return;
	}
	enter_tunnel(s);
	if (type == ETHERTYPE_BRIDGED)
		parse_frame(s);
	else if (type == ETHERTYPE_IPV4 || type == ETHERTYPE_IPV6)
		parse_network(s, type);
}

static void parse_ports(struct parse *s)
{
	struct nic_layer *l = s->layer;

	if (!there(&s->c, 4))
		return;
	l->present |= NIC_PORTS;
	l->sport = be16(s->c.p);
	l->dport = be16(s->c.p + 2);
	if (l->ip_protocol == 6) {
		if (there(&s->c, 14) && (!s->first || s->room >= 14)) {
			l->present |= NIC_TCPFLAGS;
			l->tcp_flags = be16(s->c.p + 12) & 0x1ff;
		}
		return;
	}
	s->c.p += 4;
	if (s->key && l->dport == PORT_VXLAN) {
		parse_vxlan(s);
	} else if (s->key && l->dport == PORT_MPLS && there(&s->c, 4)) {
		s->c.p += 4; /* the UDP length and checksum */
		parse_mpls_tunnel(s, NIC_MPLS_UDP);
	}
}

/* The header above IP. A later fragment has its protocol and no part of its header. */
static void parse_upper(struct parse *s, uint8_t protocol, int later)
{
	struct nic_layer *l = s->layer;

	l->ip_protocol = protocol;
	l->present |= NIC_PROTO | (protocol == 6 ? NIC_TCP : protocol == 17 ? NIC_UDP : 0);
	if (later)
		return;
	switch (protocol) {
	case 6:
	case 17:
		parse_ports(s);
		break;
	case 1:
	case 58:
		if ((l->present & (protocol == 1 ? NIC_IPV4 : NIC_IPV6)) && there(&s->c, 2)) {
			l->present |= NIC_ICMP;
			l->icmp_type = s->c.p[0];
			l->icmp_code = s->c.p[1];
		}
		break;
	case 47:
		if (s->key)
			parse_gre(s);
		break;
	case 50:
		if (there(&s->c, 4)) {
			l->present |= NIC_ESP;
			l->esp_spi = be32(s->c.p);
		}
		break;
	}
}

static void parse_ipv4(struct parse *s)
{
	struct nic_layer *l = s->layer;
	const uint8_t *p = s->c.p;
	unsigned length;
	uint16_t fragment;

	if (!there(&s->c, 20) || p[0] >> 4 != 4)
		return;
	length = (p[0] & 0x0f) * 4;
	if (length < 20 || !there(&s->c, length))
		return;
	fragment = be16(p + 6) & 0x3fff;
	l->present |= NIC_IP | NIC_IPV4;
	l->tos = p[1];
	l->ip_frag = fragment != 0;
	l->ttl = p[8];
	memcpy(l->src_ip, p + 12, 4);
	memcpy(l->dst_ip, p + 16, 4);
	s->c.p += length;
	s->first = fragment == 0x2000;
	s->room = be16(p + 2) - (int)length;
	parse_upper(s, p[9], (fragment & 0x1fff) != 0);
}

/* The length of an extension header; 0 if next is not an extension header. */
static unsigned extension_length(uint8_t next, const uint8_t *p)
{
	switch (next) {
	case 0:   /* hop-by-hop */
	case 43:  /* routing */
	case 60:  /* destination */
	case 135: /* mobility */
	case 139: /* HIP */
	case 140: /* shim6 */
		return (p[1] + 1) * 8;
	case 51: /* AH */
		return (p[1] + 2) * 4;
	case 44: /* fragment */
		return 8;
	}
	return 0;
}

static int is_extension(uint8_t next)
{
	static const uint8_t none[2];

	return extension_length(next, none) != 0;
}

static void parse_ipv6(struct parse *s)
{
	struct nic_layer *l = s->layer;
	const uint8_t *p = s->c.p;
	uint8_t next;

	if (!there(&s->c, 40) || p[0] >> 4 != 6)
		return;
	l->present |= NIC_IP | NIC_IPV6;
	l->tos = be16(p) >> 4;
	l->flow_label = be32(p) & 0xfffff;
	l->ttl = p[7];
	memcpy(l->src_ip, p + 8, 16);
	memcpy(l->dst_ip, p + 24, 16);
	next = p[6];
	s->first = 0;
	s->room = be16(p + 4);
	s->c.p += 40;
	for (int walked = 0; is_extension(next); walked++) {
		uint8_t this = next;
		unsigned length;

		if (walked == MAX_EXTENSIONS || !there(&s->c, 8))
			return;
		p = s->c.p;
		length = extension_length(this, p);
		if (!there(&s->c, length))
			return;
		next = p[0];
		s->c.p += length;
		s->room -= (int)length;
		if (this != 44)
			continue;
		l->ip_frag = 1;
		s->first |= p[3] & 1;
		if (be16(p + 2) >> 3) {
			parse_upper(s, next, 1);
			return;
		}
	}
	parse_upper(s, next, 0);
}

static void parse_network(struct parse *s, uint16_t type)
{
	switch (type) {
	case ETHERTYPE_IPV4:
		parse_ipv4(s);
		break;
	case ETHERTYPE_IPV6:
		parse_ipv6(s);
		break;
	case ETHERTYPE_MPLS:
	case ETHERTYPE_MPLS_MULTICAST:
		if (there(&s->c, 4)) {
			s->layer->present |= NIC_MPLS;
			s->layer->mpls = be32(s->c.p);
		}
		break;
	}
}

static void parse_frame(struct parse *s)
{
	static const uint32_t tag_bits[2] = { NIC_TAG, NIC_TAG2 };
	static const uint32_t kind_bits[2][2] = { { NIC_CVLAN, NIC_SVLAN }, { NIC_CVLAN2, NIC_SVLAN2 } };
	struct nic_layer *l = s->layer;
	uint16_t type;

	if (!there(&s->c, 14))
		return;
	l->present |= NIC_ETH;
	memcpy(l->dmac, s->c.p, 6);
	memcpy(l->smac, s->c.p + 6, 6);
	type = be16(s->c.p + 12);
	s->c.p += 14;
	for (int i = 0; i < 2 && (type == ETHERTYPE_CTAG || type == ETHERTYPE_STAG) && there(&s->c, 4); i++) {
		l->present |= tag_bits[i] | kind_bits[i][type == ETHERTYPE_STAG];
		l->tci[i] = be16(s->c.p);
		type = be16(s->c.p + 2);
		s->c.p += 4;
	}
	l->ether_type = type;
	parse_network(s, type);
}

int nic_parse(const uint8_t *frame, unsigned len, unsigned full, struct nic_key *key)
{
	struct parse s = { .layer = &key->outer, .key = key };
	unsigned held = len < NIC_PARSE_MAX ? len : NIC_PARSE_MAX;

	memset(key, 0, sizeof *key);
	s.c.p = frame;
	s.c.held = frame + held;
	s.c.missing = full > held ? full - held : 0;
	parse_frame(&s);
	return s.c.cut;
}
