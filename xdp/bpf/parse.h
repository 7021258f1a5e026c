/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once
/*
 * Headers of a packet into a key. docs/flows.md specifies each header and when it is
 * present. This is one reading of that specification, and internal/oracle is the other.
 *
 * Every need is a constant of the load, so a test of one costs an instruction
 * or two and the layer behind it nothing when it is not needed. Layers that a
 * packet rarely has are tested in their own branch, off the common path.
 */
#include "ethernet.h"

#define FT_GTPU_PORT bpf_htons(2152)
#define FT_VXLAN_PORT bpf_htons(4789)
#define FT_GENEVE_PORT bpf_htons(6081)
#define FT_MPLSUDP_PORT bpf_htons(6635)
#define FT_MPLS_UNICAST bpf_htons(0x8847)
#define FT_MPLS_MULTICAST bpf_htons(0x8848)
#define FT_EXT_STEPS 8
#define FT_GTPU_STEPS 4  /* extension headers of GTP-U */
#define FT_LABEL_STEPS 8 /* entries of the label stack of MPLS over UDP */

/* The bits before the flags of a TCP header, in the word that they share with fields of IP. */
#define FT_TCP_HIGH(tcp) FT_PACK(ft_load8(tcp, 12) & 0xf, 3, 1)

static __always_inline __u64 ft_hot(const struct ft_level *l)
{
	return FT_PACK(l->l4, 0, 4) | FT_PACK(l->proto, 4, 1) | FT_PACK(l->tcp_flags, 5, 1) | FT_PACK(l->flags, 6, 2);
}

/* 2 bytes as the first 2 of a field of 4. */
static __always_inline __u32 ft_first16(void *p, __u32 off)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return ft_load16(p, off);
#else
	return (__u32)ft_load16(p, off) << 16;
#endif
}

static __always_inline void *ft_parse_ipv4(void *p, void *end, struct ft_level *l, __u64 *w, __u32 need)
{
	if (p + 20 > end)
		return NULL;
	__u8 vihl = ft_load8(p, 0);
	void *next;

	if (vihl == 0x45) {
		next = p + 20;
	} else {
		__u32 len = (vihl & 0xf) * 4;

		if (vihl >> 4 != 4 || len < 20)
			return NULL;
		next = p + len;
		if (next > end)
			return NULL;
	}
	l->flags |= FT_IPV4;
	l->proto = ft_load8(p, 9);
	l->addr = ft_load64(p, 12);
	__u16 frag = ft_load16(p, 6) & bpf_htons(0x3fff);

	if (frag) {
		l->flags |= frag & bpf_htons(0x1fff) ? FT_FRAG | FT_LATER : FT_FRAG;
		l->room = bpf_ntohs(ft_load16(p, 2)) - (__s32)(vihl & 0xf) * 4;
	}
	if (need & FT_N_MISC)
		w[FT_W_MISC] = FT_PACK(ft_load8(p, 1), 0, 1) | FT_PACK(ft_load8(p, 8), 1, 1) | FT_PACK(l->proto, 2, 1);
	return frag & bpf_htons(0x1fff) ? NULL : next;
}

/*
 * Returns p, and lets the verifier forget all of it but that it is within reach: the difference of
 * two pointers is any number to the verifier. States that came here on different ways become one.
 * So the costs of layers add up, and do not multiply.
 */
static __always_inline void *ft_rebase(struct ft_frame f, void *p)
{
	__u64 off = p - f.data;

	return off > f.reach ? NULL : f.data + off;
}

/*
 * Returns v, and lets the verifier forget its value: a frame is shorter than 4 GiB, but the
 * verifier does not know that. A known value on which a branch depends keeps states apart.
 */
static __always_inline __u32 ft_forget(void *data, void *end, __u32 v)
{
	return v | (__u32)((__u64)(end - data) >> 32);
}

static __always_inline _Bool ft_is_ext(__u8 nh)
{
	return nh == 0 || nh == 43 || nh == 44 || nh == 51 || nh == 60 || nh == 135 || nh == 139 || nh == 140;
}

/* The result of a walk over extension headers. */
#define FT_WALK_OFF 0x7fff     /* where the upper protocol starts */
#define FT_WALK_THERE (1 << 15) /* in this frame */
#define FT_WALK_PROTO 16       /* shift */
#define FT_WALK_FLAGS 24       /* shift, of FT_FRAG and FT_LATER */

/*
 * Walks over extension headers from off on, of which nh is the first. The result has no upper
 * protocol, or its number alone, if the protocol is not in the frame, if the walk ran out, or if
 * it ended behind the header of a later fragment.
 */
static __always_inline __u32 ft_walk_ext(struct ft_frame f, __u32 off, __u8 nh)
{
	__u32 flags = 0;

	for (int i = 0; i <= FT_EXT_STEPS; i++) {
		if (off > f.reach)
			break;
		/*
		 * Without this the compiler leaves out the mask, because it changes nothing. The
		 * verifier of 6.1 needs it: it forgets the bound with a 32-bit copy of the value.
		 */
		asm volatile("" : "+r"(off));
		void *p = f.data + (off & f.reach);

		if (p > f.end)
			break;
		if (!ft_is_ext(nh))
			return off | FT_WALK_THERE | (__u32)nh << FT_WALK_PROTO | flags << FT_WALK_FLAGS;
		/* 8 bytes are the least that any of them has. */
		if (i == FT_EXT_STEPS || p + 8 > f.end)
			break;
		__u32 len = ft_load8(p, 1) * (nh == 51 ? 4 : 8) + 8;

		if (nh == 44) {
			__u16 frag = ft_load16(p, 2);

			len = 8;
			if (frag & bpf_htons(0xfff9))
				flags |= FT_FRAG;
			if (frag & bpf_htons(0xfff8)) {
				flags |= FT_LATER;
				return (__u32)ft_load8(p, 0) << FT_WALK_PROTO | flags << FT_WALK_FLAGS;
			}
		}
		nh = ft_load8(p, 0);
		off += len;
	}
	return flags << FT_WALK_FLAGS;
}

static __always_inline void *ft_parse_ipv6(struct ft_frame f, void *p, struct ft_level *l, __u64 *w, __u32 need, _Bool jumbo)
{
	void *next = p + 40;

	if (next > f.end || ft_load8(p, 0) >> 4 != 6)
		return NULL;
	__u8 nh = ft_load8(p, 6);

	if (jumbo) {
		nh = 6;
		next += 8;
	}

	l->flags |= FT_IPV6;
	l->addr = ft_load64(p, 8);
	w[FT_W_ADDR6] = ft_load64(p, 16);
	w[FT_W_ADDR6 + 1] = ft_load64(p, 24);
	w[FT_W_ADDR6 + 2] = ft_load64(p, 32);
	if (need & FT_N_MISC) {
		__u32 first = ft_load32(p, 0);

		w[FT_W_MISC] = FT_PACK(bpf_ntohl(first) >> 20 & 0xff, 0, 1) | FT_PACK(ft_load8(p, 7), 1, 1) |
			       FT_PACK(nh, 2, 1) | FT_PACK(first & bpf_htonl(0xfffff), 4, 4);
	}
	l->proto = nh;
	if (!ft_is_ext(nh))
		return next;
	__u32 walk = f.walk(f.ctx, next - f.data, nh);

	l->proto = walk >> FT_WALK_PROTO & 0xff;
	l->flags |= walk >> FT_WALK_FLAGS;
	if (walk >> FT_WALK_FLAGS & FT_FRAG)
		l->room = bpf_ntohs(ft_load16(p, 4)) + (__s32)(next - f.data) - (__s32)(walk & FT_WALK_OFF);
	return walk & FT_WALK_THERE ? f.data + (walk & f.reach) : NULL;
}

/* The first label stack entry of MPLS. Nothing behind it is parsed. */
static __always_inline void ft_parse_mpls(void *p, void *end, struct ft_level *l, __u64 *w, __u32 need)
{
	if (p + 4 > end)
		return;
	l->flags = (l->flags | FT_MPLS) & ~FT_INCOMPLETE;
	if (need & FT_N_TAGS)
		w[FT_W_TAGS] |= FT_PACK(ft_load32(p, 0), 4, 4);
}

/* ARP. Its fields are there if its addresses are MACs and those of IPv4. Linux takes two hardware types. */
static __always_inline void ft_parse_arp(void *p, void *end, struct ft_level *l)
{
	if (p + 28 > end)
		return;
	l->flags &= ~FT_INCOMPLETE;
	if (ft_load16(p, 2) != bpf_htons(ETH_P_IP) || ft_load16(p, 4) != bpf_htons(ETH_ALEN << 8 | 4))
		return;
	l->flags |= FT_L4;
	l->l4 = ft_first16(p, 6);
	l->addr = FT_PACK(ft_load32(p, 14), 0, 4) | FT_PACK(ft_load32(p, 24), 4, 4);
}

/* IP and the protocol above it, or ARP, or MPLS. Returns the start of that protocol's header, or NULL. jumbo: see
 * FT_JUMBO. */
static __always_inline void *ft_parse_ip(struct ft_frame f, void *p, struct ft_level *l, __u64 *w, __u32 need, _Bool jumbo)
{
	void *data = f.data, *end = f.end;
	__u32 icmp;

	if (l->type == bpf_htons(ETH_P_IP)) {
		if (!(need & FT_N_IPV4))
			return NULL;
		p = ft_parse_ipv4(p, end, l, w, need);
		icmp = 1;
	} else if (l->type == bpf_htons(ETH_P_IPV6)) {
		if (!(need & FT_N_IPV6))
			return NULL;
		p = ft_parse_ipv6(f, p, l, w, need, jumbo);
		icmp = 58;
	} else if (need & FT_N_MPLS && (l->type == FT_MPLS_UNICAST || l->type == FT_MPLS_MULTICAST)) {
		ft_parse_mpls(p, end, l, w, need);
		return NULL;
	} else if (need & FT_N_ARP && l->type == bpf_htons(ETH_P_ARP) && l->flags & FT_ETH) {
		ft_parse_arp(p, end, l);
		return NULL;
	} else {
		if (l->type != FT_TAG_8100 && l->type != FT_TAG_88A8)
			l->flags &= ~FT_INCOMPLETE;
		return NULL;
	}
	if (p)
		p = ft_rebase(f, p);
	if (!p) {
		if (l->flags & FT_LATER)
			l->flags &= ~FT_INCOMPLETE;
		return NULL;
	}
	l->flags = ft_forget(data, end, l->flags);
	icmp = ft_forget(data, end, icmp);
	if (need & FT_N_L4) {
		if (l->proto == 17 || l->proto == 6) {
			if (p + 4 <= end) {
				l->l4 = ft_load32(p, 0);
				l->flags |= FT_L4;
				if (!(need & FT_N_TCPFLAGS) || l->proto == 17) {
					l->flags &= ~FT_INCOMPLETE;
				} else if (p + 14 <= end && l->room >= 14) {
					l->tcp_flags = ft_load8(p, 13);
					l->flags = (l->flags | FT_TCPFLAGS) & ~FT_INCOMPLETE;
					if (need & FT_N_TCPHIGH)
						w[FT_W_MISC] |= FT_TCP_HIGH(p);
				}
			}
		} else if (l->proto == icmp) {
			if (p + 2 <= end) {
				l->l4 = ft_first16(p, 0);
				l->flags = (l->flags | FT_L4) & ~FT_INCOMPLETE;
			}
		} else if (need & FT_N_ESP && l->proto == 50) {
			if (p + 4 <= end) {
				l->l4 = ft_load32(p, 0);
				l->flags = (l->flags | FT_L4) & ~FT_INCOMPLETE;
			}
		} else if (need & FT_N_SCTP && l->proto == 132) {
			if (p + 8 <= end) {
				l->l4 = ft_load32(p, 0);
				l->flags = (l->flags | FT_L4) & ~FT_INCOMPLETE;
				if (need & FT_N_TAGS)
					w[FT_W_TAGS] |= FT_PACK(ft_load32(p, 4), 4, 4);
			}
		} else if (need & FT_N_AH && l->proto == 51) {
			if (p + 8 <= end) {
				l->l4 = ft_load32(p, 4);
				l->flags = (l->flags | FT_L4) & ~FT_INCOMPLETE;
			}
		} else {
			l->flags &= ~FT_INCOMPLETE;
		}
	}
	return p;
}

/* Reports whether UDP to the port is a tunnel that some rule looks at. */
static __always_inline _Bool ft_is_tunnel(__u16 port, __u32 need)
{
	return (need & FT_N_VXLAN && port == FT_VXLAN_PORT) || (need & FT_N_GENEVE && port == FT_GENEVE_PORT) ||
	       (need & FT_N_GTPU && port == FT_GTPU_PORT) || (need & FT_N_MPLSUDP && port == FT_MPLSUDP_PORT);
}

/* The EtherType of a packet that begins with IP; 0 for any other packet. */
static __always_inline __u16 ft_type_of(void *p, void *end)
{
	if (p + 1 > end)
		return 0;
	switch (ft_load8(p, 0) >> 4) {
	case 4:
		return bpf_htons(ETH_P_IP);
	case 6:
		return bpf_htons(ETH_P_IPV6);
	}
	return 0;
}

/* The byte at off, or NULL if the frame ends before. It may be the end of the frame. */
static __always_inline void *ft_at(struct ft_frame f, __u32 off)
{
	if (off > f.reach)
		return NULL;
	/*
	 * Without this the compiler leaves out the mask, because it changes nothing. The verifier of
	 * 6.1 needs it: it forgets the bound with a 32-bit copy of the value.
	 */
	asm volatile("" : "+r"(off));
	void *p = f.data + (off & f.reach);

	return p > f.end ? NULL : p;
}

/* The header of the tunnel is in the frame; number is its VNI, TEID or label stack entry. w is the outer level of a whole key. */
static __always_inline void ft_note_tunnel(__u64 *w, __u32 number)
{
	w[FT_W_HOT] |= FT_PACK(FT_TUNNEL, 6, 2);
	w[FT_W_TAGS] |= FT_PACK(number, 4, 4);
}

/*
 * Where the packet inside a tunnel begins, if something in between is cut, or there is more of it than is walked over. The
 * packet inside then has incomplete headers. It lies behind the reach of every frame.
 */
#define FT_UNREACHED 0xffff

/* The extension headers of GTP-U. at is the type of the first, the byte before it. Returns the offset behind the last. */
static __always_inline __u32 ft_walk_gtpu(struct ft_frame f, __u32 at)
{
	for (int i = 0; i <= FT_GTPU_STEPS; i++) {
		void *p = ft_at(f, at);

		if (!p || p + 1 > f.end)
			break;
		if (!ft_load8(p, 0))
			return at + 1;
		if (i == FT_GTPU_STEPS || p + 2 > f.end)
			break;
		__u32 len = ft_load8(p, 1) * 4;

		if (!len)
			break;
		at += len; /* the last byte of each is the type of the next */
	}
	return FT_UNREACHED;
}

/* The label stack from off on. Returns the offset behind its bottom. */
static __always_inline __u32 ft_walk_labels(struct ft_frame f, __u32 off)
{
	for (int i = 0; i < FT_LABEL_STEPS; i++) {
		void *p = ft_at(f, off);

		if (!p || p + 4 > f.end)
			break;
		off += 4;
		if (ft_load8(p, 2) & 1)
			return off;
	}
	return FT_UNREACHED;
}

/*
 * A tunnel's header of any length, off bytes into the frame, behind UDP. Returns the offset of the packet inside, and
 * the type of a packet that has one; or 0 if there is no such header.
 */
static __always_inline __u32 ft_parse_long(struct ft_frame f, __u64 *w, __u32 need, __u32 off, __u16 port, __u16 *type)
{
	void *p = f.data + (off & f.reach);

	if (need & FT_N_GENEVE && port == FT_GENEVE_PORT) {
		if (p + 8 > f.end || ft_load8(p, 0) >> 6)
			return 0;
		ft_note_tunnel(w, ft_load32(p, 4) & bpf_htonl(0xffffff00));
		*type = ft_load16(p, 2);
		return off + 8 + (ft_load8(p, 0) & 0x3f) * 4;
	}
	if (need & FT_N_GTPU && port == FT_GTPU_PORT) {
		/* Version 1, and a G-PDU. */
		if (p + 8 > f.end || (ft_load16(p, 0) & bpf_htons(0xf0ff)) != bpf_htons(0x30ff))
			return 0;
		__u8 flags = ft_load8(p, 0);

		ft_note_tunnel(w, ft_load32(p, 4));
		if (flags & 4)
			return ft_walk_gtpu(f, off + 11);
		return flags & 3 ? off + 12 : off + 8;
	}
	if (need & FT_N_MPLSUDP && port == FT_MPLSUDP_PORT) {
		if (p + 4 > f.end)
			return 0;
		ft_note_tunnel(w, ft_load32(p, 0));
		return ft_walk_labels(f, off);
	}
	return 0;
}

/*
 * The headers inside a tunnel, off bytes into the frame; type is their EtherType. If port is not 0, the header of the tunnel
 * over UDP to this port is there, and not parsed yet.
 */
static __always_inline int ft_parse_inner(struct ft_frame f, struct ft_key *k, __u32 off, __u32 type, __u32 port)
{
	void *data = f.data, *end = f.end;
	const __u64 all = FT_CONST(need);
	const __u32 outer = all, need = all >> FT_N_INNER;
	struct ft_level in = { .type = type, .flags = FT_INCOMPLETE, .room = 14 };

	if (!k)
		return 0;
	__u64 *w = k->w + FT_INNER;
	void *p = data + (off & f.reach);

	if (outer & FT_N_LONG && port) {
		off = ft_parse_long(f, k->w, outer, off, port, &in.type);
		if (!off || !need)
			return 0;
		p = ft_at(f, off);
		if (!p) {
			w[FT_W_HOT] = ft_hot(&in);
			return 0;
		}
		if (port != FT_GENEVE_PORT)
			in.type = ft_type_of(p, end);
	}
	if (in.type == bpf_htons(0x6558)) {
		in.type = 0;
		p = ft_parse_eth(p, end, &in, w, need, 0, 0, 0);
		if (p)
			p = ft_rebase(f, p);
		in.flags = ft_forget(data, end, in.flags);
	}
	if (p)
		ft_parse_ip(f, p, &in, w, need, 0);
	w[FT_W_HOT] = ft_hot(&in);
	w[FT_W_ADDR] = in.addr;
	return 0;
}

/*
 * The tunnel's own header. Returns the start of the inner packet, and its type; or NULL. A header of any length is left to
 * ft_parse_inner: then this returns where it begins, and its port.
 */
static __always_inline void *ft_parse_tunnel(void *p, void *end, struct ft_level *l, __u64 *w, __u32 need, __u16 *type,
					     __u16 *port)
{
	if (l->proto == 17 && need & FT_N_LONG) {
		if (p + 8 > end)
			return NULL;
		__u16 to = ft_load16(p, 2);

		if (ft_is_tunnel(to, need & FT_N_LONG)) {
			*port = to;
			return p + 8;
		}
	}
	if (l->proto == 17 && need & FT_N_VXLAN) {
		if (p + 16 > end || ft_load16(p, 2) != FT_VXLAN_PORT)
			return NULL;
		l->flags |= FT_TUNNEL;
		w[FT_W_TAGS] |= FT_PACK(ft_load32(p, 12) & bpf_htonl(0xffffff00), 4, 4);
		*type = bpf_htons(0x6558);
		return p + 16;
	}
	if (l->proto == 47 && need & FT_N_GRE) {
		if (p + 4 > end)
			return NULL;
		__u16 f = bpf_ntohs(ft_load16(p, 0));
		__u32 key = f >> 13 & 1, len = 4 + 4 * (f >> 15) + 4 * key + 4 * (f >> 12 & 1);

		if (f & 0x4007 || p + len > end)
			return NULL;
		*type = ft_load16(p, 2);
		l->flags |= FT_GRE;
		if (key) {
			__u32 off = 4 + 4 * (f >> 15);

			if (p + off + 4 > end)
				return NULL;
			l->flags |= FT_GREKEY;
			w[FT_W_TAGS] |= FT_PACK(ft_load32(p + off, 0), 4, 4);
		}
		return p + len;
	}
	if (need & FT_N_IPIP && (l->proto == 4 || l->proto == 41)) {
		l->flags |= FT_TUNNEL;
		*type = l->proto == 4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
		return p;
	}
	return NULL;
}

/* Clears the words that the verifier must see written before a rule may read them. */
static __always_inline void ft_clear(__u64 *w, __u32 need)
{
	if (need & FT_N_IPV6)
		w[FT_W_ADDR6] = w[FT_W_ADDR6 + 1] = w[FT_W_ADDR6 + 2] = 0;
	if (need & FT_N_MISC)
		w[FT_W_MISC] = 0;
	if (need & FT_N_ETH)
		w[FT_W_DST] = w[FT_W_SRC] = 0;
	if (need & FT_N_TAGS)
		w[FT_W_TAGS] = 0;
}

/* Every word that a rule may look at, and so the verifier must see written. */
static __always_inline void ft_clear_inner(struct ft_key *k, __u64 need)
{
	if (need >> FT_N_INNER) {
		k->w[FT_INNER + FT_W_HOT] = k->w[FT_INNER + FT_W_ADDR] = 0;
		ft_clear(k->w + FT_INNER, need >> FT_N_INNER);
	}
}

/* The kernel's knowledge about a frame that is not in the frame: a tag, of which the low 16 bits
 * are the TCI in network order; */
#define FT_TAG_BESIDE (1 << 16)
/* and that the first header behind IPv6, 8 bytes before TCP, will not be on the wire. */
#define FT_JUMBO (1 << 17)
/* The data begin behind the Ethernet header, see ft_is_bare. The parser reads a copy with the header. */
#define FT_BARE (1 << 18)

/*
 * The key of any frame. Returns the start of the packet inside a tunnel, and its EtherType << 16
 * as it is in the frame, when some rule looks there; or 0. With a port << 32 it is the start of the tunnel's header.
 */
static __always_inline __u64 ft_parse_outer(struct ft_frame f, struct ft_key *k, __u32 beside)
{
	void *data = f.data, *end = f.end;
	const __u64 need = FT_CONST(need);
	struct ft_level l = { .flags = FT_CONST(egress) | FT_INCOMPLETE, .room = 14 };
	__u64 spare = 0;

	ft_clear(k->w, need);
	ft_clear_inner(k, need);
	if (need & FT_N_ETH)
		k->w[FT_W_SRC] = spare = FT_PACK(FT_CONST(port), 6, 2);
	void *p = data;
	__u16 type = 0, port = 0;

	if (FT_CONST(layer3))
		l.type = ft_type_of(p, end);
	else
		p = ft_parse_eth(p, end, &l, k->w, need, spare, beside & FT_TAG_BESIDE, beside);
	if (p)
		p = ft_rebase(f, p);
	l.flags = ft_forget(data, end, l.flags);
	if (p && need & (FT_N_IPV4 | FT_N_IPV6 | FT_N_MPLS | FT_N_ARP)) {
		p = ft_parse_ip(f, p, &l, k->w, need, beside & FT_JUMBO);
		if (need & FT_N_TUNNEL && p)
			p = ft_parse_tunnel(p, end, &l, k->w, need, &type, &port);
		else
			p = NULL;
	}
	k->w[FT_W_HOT] = ft_hot(&l);
	k->w[FT_W_ADDR] = l.addr;
	if (!p || !(port || (type && need >> FT_N_INNER)))
		return 0;
	__u64 off = p - data;

	return off > 0x7fff ? 0 : off | (__u32)type << 16 | (__u64)port << 32;
}

/*
 * The parsers for one kind of frame. The walk over extension headers and the inner parser are functions.
 *
 * The functions are global: the verifier looks at each once, by itself, and not again for every
 * state of a caller. A global function takes the context, because it cannot take packet pointers.
 */
#define FT_PARSER(name, ctx_type)                                                                  \
	__noinline __u32 ft_walk_##name(ctx_type *ctx, __u32 off, __u32 nh)                        \
	{                                                                                          \
		return ctx ? ft_walk_ext(ft_frame_##name(ctx), off, nh) : 0;                       \
	}                                                                                          \
	__noinline int ft_inner_##name(ctx_type *ctx, struct ft_key *k, __u32 off, __u32 type, __u32 port) \
	{                                                                                          \
		return ctx ? ft_parse_inner(ft_frame_##name(ctx), k, off, type, port) : 0;         \
	}                                                                                          \
	static __always_inline void ft_parse_##name(ctx_type *ctx, struct ft_key *k, __u32 beside) \
	{                                                                                          \
		__u64 inner = ft_parse_outer(ft_frame_##name(ctx), k, beside);                     \
                                                                                                   \
		if (FT_CONST(need) & (FT_N_LONG | -1ULL << FT_N_INNER) && inner)                     \
			ft_inner_##name(ctx, k, inner & 0x7fff, inner >> 16 & 0xffff, inner >> 32); \
	}

/* The parsers of the linear memory of a frame, for one kind of context. */
#define FT_LINEAR(name, ctx_type)                                                                    \
	__noinline __u32 ft_walk_##name(ctx_type *ctx, __u32 off, __u32 nh);                         \
	static __always_inline struct ft_frame ft_frame_##name(ctx_type *ctx)                        \
	{                                                                                            \
		return (struct ft_frame){ (void *)(long)ctx->data, (void *)(long)ctx->data_end, ctx, \
					  (void *)ft_walk_##name, FT_WALK_OFF };                     \
	}                                                                                            \
	FT_PARSER(name, ctx_type)
