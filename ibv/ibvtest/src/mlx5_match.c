/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_match.c: struct mlx5_ifc_fte_match_param_bits as a nic_match. Five sections of 64 bytes:
 * outer headers, misc, inner headers, misc_2, misc_3. Fields that the NIC does not match are
 * reserved here, as they are on a device without the capability.
 */
#include <errno.h>
#include <string.h>

#include "mlx5_prm.h"

enum {
	SECTION_BYTES = 64,
	SECTION_BITS = 8 * SECTION_BYTES,
	SECTIONS = MLX5_MATCH_BYTES / SECTION_BYTES,

	OUTER = 0 * SECTION_BITS,
	MISC = 1 * SECTION_BITS,
	INNER = 2 * SECTION_BITS,
	MISC2 = 3 * SECTION_BITS,
	MISC3 = 4 * SECTION_BITS,
};

/* A field of the PRM and where it goes in a nic_key: a number of size bytes, shifted left,
 * at an offset; or, when size is 0, one that says that headers are there (1) or not (0). */
struct match_field {
	struct mlx5_field prm;
	uint8_t size, shift;
	uint16_t at;
	uint32_t present; /* the headers that the field requires, in the layer or in the tunnel */
	uint16_t present_at;
};

#define OUTER_AT(member) offsetof(struct nic_key, outer.member)
#define INNER_AT(member) offsetof(struct nic_key, inner.member)
#define NUMBER(base, bit, width, size, layer, member, shift, has) \
	{ { (base) + (bit), width }, size, shift, layer##_AT(member), has, layer##_AT(present) }
#define FLAG(base, bit, layer, has) { { (base) + (bit), 1 }, 0, 0, 0, has, layer##_AT(present) }
#define TUNNEL(bit, width, size, member, has) \
	{ { bit, width }, size, 0, offsetof(struct nic_key, member), has, offsetof(struct nic_key, tunnel) }
#define TUNNEL_FLAG(bit, has) { { bit, 1 }, 0, 0, 0, has, offsetof(struct nic_key, tunnel) }

/* Addresses and ip_version are not in it: see match_layer. */
#define LAYER(base, layer) \
	NUMBER(base, 0x30, 16, 2, layer, ether_type, 0, NIC_ETH), NUMBER(base, 0x70, 3, 2, layer, tci[0], 13, NIC_TAG), \
		NUMBER(base, 0x73, 1, 2, layer, tci[0], 12, NIC_TAG), NUMBER(base, 0x74, 12, 2, layer, tci[0], 0, NIC_TAG), \
		NUMBER(base, 0x80, 8, 1, layer, ip_protocol, 0, NIC_PROTO), NUMBER(base, 0x88, 6, 1, layer, tos, 2, NIC_IP), \
		NUMBER(base, 0x8e, 2, 1, layer, tos, 0, NIC_IP), FLAG(base, 0x90, layer, NIC_CVLAN), \
		FLAG(base, 0x91, layer, NIC_SVLAN), NUMBER(base, 0x92, 1, 1, layer, ip_frag, 0, NIC_IP), \
		NUMBER(base, 0x97, 9, 2, layer, tcp_flags, 0, NIC_TCP | NIC_TCPFLAGS), \
		NUMBER(base, 0xa0, 16, 2, layer, sport, 0, NIC_TCP | NIC_PORTS), \
		NUMBER(base, 0xb0, 16, 2, layer, dport, 0, NIC_TCP | NIC_PORTS), \
		NUMBER(base, 0xd8, 8, 1, layer, ttl, 0, NIC_IP), NUMBER(base, 0xe0, 16, 2, layer, sport, 0, NIC_UDP | NIC_PORTS), \
		NUMBER(base, 0xf0, 16, 2, layer, dport, 0, NIC_UDP | NIC_PORTS)

static const struct match_field fields[] = {
	LAYER(OUTER, OUTER),
	LAYER(INNER, INNER),
	TUNNEL_FLAG(MISC + 0x00, NIC_GRE_CSUM),
	TUNNEL_FLAG(MISC + 0x02, NIC_GRE_KEY),
	TUNNEL_FLAG(MISC + 0x03, NIC_GRE_SEQ),
	NUMBER(MISC, 0x40, 3, 2, OUTER, tci[1], 13, NIC_TAG2),
	NUMBER(MISC, 0x43, 1, 2, OUTER, tci[1], 12, NIC_TAG2),
	NUMBER(MISC, 0x44, 12, 2, OUTER, tci[1], 0, NIC_TAG2),
	NUMBER(MISC, 0x50, 3, 2, INNER, tci[1], 13, NIC_TAG2),
	NUMBER(MISC, 0x53, 1, 2, INNER, tci[1], 12, NIC_TAG2),
	NUMBER(MISC, 0x54, 12, 2, INNER, tci[1], 0, NIC_TAG2),
	FLAG(MISC, 0x60, OUTER, NIC_CVLAN2),
	FLAG(MISC, 0x61, INNER, NIC_CVLAN2),
	FLAG(MISC, 0x62, OUTER, NIC_SVLAN2),
	FLAG(MISC, 0x63, INNER, NIC_SVLAN2),
	TUNNEL(MISC + 0x70, 16, 2, gre_protocol, NIC_GRE),
	TUNNEL(MISC + 0x80, 32, 4, gre_key, NIC_GRE | NIC_GRE_KEY),
	TUNNEL(MISC + 0xa0, 24, 4, vni, NIC_VXLAN),
	NUMBER(MISC, 0xec, 20, 4, OUTER, flow_label, 0, NIC_IPV6),
	NUMBER(MISC, 0x10c, 20, 4, INNER, flow_label, 0, NIC_IPV6),
	NUMBER(MISC, 0x160, 32, 4, INNER, esp_spi, 0, NIC_ESP),
	NUMBER(MISC, 0x180, 32, 4, OUTER, esp_spi, 0, NIC_ESP),
	NUMBER(MISC2, 0x00, 32, 4, OUTER, mpls, 0, NIC_MPLS),
	NUMBER(MISC2, 0x20, 32, 4, INNER, mpls, 0, NIC_MPLS),
	TUNNEL(MISC2 + 0x40, 32, 4, mpls, NIC_GRE | NIC_MPLS_GRE),
	TUNNEL(MISC2 + 0x60, 32, 4, mpls, NIC_MPLS_UDP),
	NUMBER(MISC3, 0x100, 8, 1, OUTER, icmp_type, 0, NIC_ICMP | NIC_IPV4),
	NUMBER(MISC3, 0x108, 8, 1, OUTER, icmp_code, 0, NIC_ICMP | NIC_IPV4),
	NUMBER(MISC3, 0x110, 8, 1, OUTER, icmp_type, 0, NIC_ICMP | NIC_IPV6),
	NUMBER(MISC3, 0x118, 8, 1, OUTER, icmp_code, 0, NIC_ICMP | NIC_IPV6),
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Headers that no packet has at once. */
static const uint32_t exclusive[] = { NIC_IPV4 | NIC_IPV6, NIC_TCP | NIC_UDP, NIC_CVLAN | NIC_SVLAN, NIC_CVLAN2 | NIC_SVLAN2 };
static const uint32_t exclusive_tunnels[] = { NIC_VXLAN | NIC_GRE, NIC_VXLAN | NIC_MPLS_UDP, NIC_GRE | NIC_MPLS_UDP };

static int all_of(uint32_t present, const uint32_t *sets, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if ((present & sets[i]) == sets[i])
			return 1;
	return 0;
}

static void or_number(void *key, const struct match_field *f, uint32_t value)
{
	uint8_t *at = (uint8_t *)key + f->at;
	uint32_t have = 0;

	/* A number of size bytes in host order: read, or, written. */
	switch (f->size) {
	case 1:
		*at |= value << f->shift;
		break;
	case 2: {
		uint16_t v;
		memcpy(&v, at, sizeof v);
		v |= value << f->shift;
		memcpy(at, &v, sizeof v);
		break;
	}
	case 4:
		memcpy(&have, at, sizeof have);
		have |= value << f->shift;
		memcpy(at, &have, sizeof have);
		break;
	}
}

static void or_present(void *key, const struct match_field *f, uint32_t bits)
{
	uint32_t have;

	memcpy(&have, (uint8_t *)key + f->present_at, sizeof have);
	have |= bits;
	memcpy((uint8_t *)key + f->present_at, &have, sizeof have);
}

static void match_field(const struct match_field *f, const uint8_t *mask, const uint8_t *value, struct nic_match *to)
{
	uint32_t m = mlx5_get(mask, f->prm.bit, f->prm.width), v = mlx5_get(value, f->prm.bit, f->prm.width);

	if (!m)
		return;
	or_present(&to->mask, f, f->present);
	if (!f->size) {
		/* Of a GRE header that has no key: there is one all the same. */
		if (f->present & (NIC_GRE_CSUM | NIC_GRE_KEY | NIC_GRE_SEQ) && f->present_at == offsetof(struct nic_key, tunnel)) {
			or_present(&to->mask, f, NIC_GRE);
			or_present(&to->value, f, NIC_GRE);
		}
		/* Without a C-tag as the first tag is without any (the kernel's mlx5 en_tc.c matches untagged frames so). */
		if (!v && f->present == NIC_CVLAN)
			or_present(&to->mask, f, NIC_TAG);
		if (v)
			or_present(&to->value, f, f->present);
		return;
	}
	or_present(&to->value, f, f->present);
	or_number(&to->mask, f, m);
	or_number(&to->value, f, v);
}

/* An IPv4 address is in the last 4 of the PRM's 16 bytes, in the first 4 of the key's. */
static int match_address(const uint8_t *mask, const uint8_t *value, uint32_t ip, uint8_t *to_mask, uint8_t *to_value)
{
	static const uint8_t none[16];
	unsigned skip = ip == NIC_IPV4 ? 12 : 0;

	if (!memcmp(mask, none, sizeof none))
		return 0;
	if (!ip || memcmp(mask, none, skip))
		return EINVAL;
	memcpy(to_mask, mask + skip, 16 - skip);
	memcpy(to_value, value + skip, 16 - skip);
	return 0;
}

/* The fields that are not plain numbers of a layer: MAC addresses, the IP version, IP addresses. */
static int match_layer(const uint8_t *mask, const uint8_t *value, struct nic_layer *m, struct nic_layer *v)
{
	static const uint8_t none[16];
	uint32_t version = mlx5_get(mask, 0x93, 4), ip = 0;
	int err;

	memcpy(m->smac, mask, 6);
	memcpy(v->smac, value, 6);
	memcpy(m->dmac, mask + 8, 6);
	memcpy(v->dmac, value + 8, 6);
	if (version) {
		uint32_t said = mlx5_get(value, 0x93, 4);

		if (version != 0xf || (said != 4 && said != 6))
			return EINVAL;
		ip = said == 4 ? NIC_IPV4 : NIC_IPV6;
	} else if (m->ether_type == 0xffff && (v->ether_type == 0x0800 || v->ether_type == 0x86dd)) {
		ip = v->ether_type == 0x0800 ? NIC_IPV4 : NIC_IPV6;
	}
	err = match_address(mask + 32, value + 32, ip, m->src_ip, v->src_ip);
	if (!err)
		err = match_address(mask + 48, value + 48, ip, m->dst_ip, v->dst_ip);
	/* An Ethertype alone says of which family addresses are, and asks for no header. */
	if (version || memcmp(m->src_ip, none, sizeof none) || memcmp(m->dst_ip, none, sizeof none)) {
		m->present |= ip;
		v->present |= ip;
	}
	return err;
}

/* The fields that match_layer reads. */
static const struct mlx5_field by_hand[] = {
	{ 0x00, 48 }, { 0x40, 48 }, { 0x93, 4 }, { 0x100, 128 }, { 0x180, 128 },
};

int mlx5_match_mask(const uint8_t *mask, uint8_t criteria)
{
	struct mlx5_field taken[COUNT(fields) + 2 * COUNT(by_hand)];
	static const uint8_t none[SECTION_BYTES];
	unsigned n = 0;

	for (unsigned i = 0; i < SECTIONS; i++)
		if (!(criteria >> i & 1) && memcmp(mask + i * SECTION_BYTES, none, sizeof none))
			return EINVAL;
	for (unsigned i = 0; i < COUNT(fields); i++)
		taken[n++] = fields[i].prm;
	for (unsigned i = 0; i < COUNT(by_hand); i++) {
		taken[n++] = (struct mlx5_field){ OUTER + by_hand[i].bit, by_hand[i].width };
		taken[n++] = (struct mlx5_field){ INNER + by_hand[i].bit, by_hand[i].width };
	}
	return mlx5_reserved(mask, MLX5_MATCH_BYTES, taken, n) < 0 ? 0 : EINVAL;
}

int mlx5_match(const uint8_t *mask, const uint8_t *value, struct nic_match *to)
{
	int err;

	for (unsigned i = 0; i < MLX5_MATCH_BYTES; i++)
		if (value[i] & ~mask[i])
			return EINVAL;
	memset(to, 0, sizeof *to);
	for (unsigned i = 0; i < COUNT(fields); i++)
		match_field(&fields[i], mask, value, to);
	err = match_layer(mask + OUTER / 8, value + OUTER / 8, &to->mask.outer, &to->value.outer);
	if (!err)
		err = match_layer(mask + INNER / 8, value + INNER / 8, &to->mask.inner, &to->value.inner);
	if (!err && (all_of(to->value.outer.present, exclusive, COUNT(exclusive)) ||
		     all_of(to->value.inner.present, exclusive, COUNT(exclusive)) ||
		     all_of(to->value.tunnel, exclusive_tunnels, COUNT(exclusive_tunnels))))
		err = EINVAL;
	return err;
}

/* mlx5_match_multicast: does mlx5_ib put the flow into its table for multicast, behind all
 * priorities? This is the test of raw_fs_is_multicast. Its test of IPv4 holds for masks that are
 * multicast addresses themselves, such as the mask of 224.0.0.0/3, and not for /4 to /32. */
int mlx5_match_multicast(const uint8_t *mask, const uint8_t *value)
{
	enum { DMAC = 8, DST_IPV4 = 60 };

	return (mask[DMAC] & value[DMAC] & 1) || ((mask[DST_IPV4] & 0xf0) == 0xe0 && (value[DST_IPV4] & 0xf0) == 0xe0);
}
