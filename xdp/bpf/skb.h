/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once
/*
 * The packets and bytes of a socket buffer on the wire. gso_segs is the number of segments of a
 * buffer, and wire_len its length with a copy of the headers for each. On ingress wire_len is the
 * length of the buffer alone, so the headers of the segments of a buffer that the kernel has merged
 * (GRO) are computed. Two kinds of buffers differ:
 *
 * A buffer from a guest, a tap or a PACKET_VNET_HDR socket, and one whose size a program has
 * changed, has gso_segs 0. Its segments are computed as the kernel does it for wire_len
 * (qdisc_pkt_len_init), because wire_len is older than the program's change.
 *
 * BIG TCP over IPv6, more than 64 KiB, has a hop-by-hop header of 8 bytes that the kernel
 * takes out before the wire (ipv6_has_hopopt_jumbo). wire_len counts it in every segment.
 */
#include <bpf/bpf_core_read.h>
#include "parse.h"

/* The kernel's struct behind struct __sk_buff. */
struct sk_buff {
	unsigned char *head, *data;
	__u32 end;
	__u16 transport_header, inner_transport_header, network_header, mac_header;
	__u8 encapsulation : 1;
} __attribute__((preserve_access_index));

struct skb_shared_info {
	__u32 gso_type;
} __attribute__((preserve_access_index));

#define FT_GSO_TCP (1 << 0 | 1 << 4) /* SKB_GSO_TCPV4, SKB_GSO_TCPV6 */
#define FT_GSO_UDP_L4 (1 << 17)      /* SKB_GSO_UDP_L4 */
#define FT_GSO_BY_FRAGS 0xffff       /* the gso_size of SCTP: each fragment is a segment */
#define FT_SCTP_HEADER 12	     /* struct sctphdr, at the head of each segment */
#define FT_UNSET 0xffff              /* of a transport_header */

extern void *bpf_cast_to_kern_ctx(void *) __ksym;
extern void *bpf_rdonly_cast(const void *, __u32) __ksym;

/*
 * Reports whether the data begin behind the Ethernet header. TCX shows the frame from mac_len before IP on. If a generic XDP
 * program takes frames of several buffers, the kernel (from 6.9) copies the socket buffer (skb_pp_cow_data). The copy has
 * mac_len 0, and the right mac_header. The kernel sets mac_len again where it takes a tag out of the frame (skb_vlan_untag).
 */
static __always_inline _Bool ft_is_bare(struct __sk_buff *skb)
{
	struct sk_buff *s;

	if (FT_CONST(egress) || FT_CONST(layer3))
		return 0;
	s = bpf_cast_to_kern_ctx(skb);
	return (__u32)(s->data - s->head) - s->mac_header == ETH_HLEN;
}

#define FT_JUMBO_LEN 8
#define FT_LEGACY_MAX 65536 /* GRO_LEGACY_MAX_SIZE: no buffer up to this length has the header */

/* Reports whether the first header behind IPv6 is the one that the kernel takes out again. */
static __always_inline _Bool ft_has_jumbo(struct __sk_buff *skb, _Bool bare)
{
	__u32 ip = 0, option = 0;
	__u16 type = 0;
	__u8 head[8] = {};

	if (skb->len <= FT_LEGACY_MAX || !skb->gso_size)
		return 0;
	if (!FT_CONST(layer3) && !bare) {
		if (bpf_skb_load_bytes(skb, 12, &type, sizeof(type)) || type != bpf_htons(ETH_P_IPV6))
			return 0;
		ip = ETH_HLEN;
	}
	if (bpf_skb_load_bytes(skb, ip, head, sizeof(head)) || bpf_skb_load_bytes(skb, ip + 40, &option, sizeof(option)))
		return 0;
	/* Version 6, hop-by-hop; then TCP, length 0, the option of a jumbo payload and its length. */
	return head[0] >> 4 == 6 && head[6] == 0 && option == bpf_htonl(0x0600c204);
}

struct ft_wire {
	__u64 packets, bytes;
};

/* Returns the byte at off, or -1. The byte is nearly always linear, between data and end. */
static __always_inline int ft_byte_at(struct __sk_buff *skb, void *data, void *end, __u32 off)
{
	void *p = data + (off & 0x7fff);
	__u8 byte = 0;

	if (off <= 0x7fff && p + 1 <= end)
		return ft_load8(p, 0);
	return bpf_skb_load_bytes(skb, off, &byte, sizeof(byte)) ? -1 : byte;
}

/* Counts the segments of a buffer with gso_size above 0: without gso_segs, on ingress, or of SCTP. */
static __always_inline void ft_segments(struct __sk_buff *skb, struct ft_wire *w)
{
	struct sk_buff *s = bpf_cast_to_kern_ctx(skb);
	struct skb_shared_info *info;
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__u32 len = skb->len, size = skb->gso_size, at = s->transport_header;

	if (at == FT_UNSET)
		return;
	if (BPF_CORE_READ_BITFIELD(s, encapsulation))
		at = s->inner_transport_header;
	__u32 headers = at - (__u32)(s->data - s->head);

	/* On ingress the kernel lets an unset transport header begin where the network header does. */
	if (at == s->network_header) {
		int version = ft_byte_at(skb, data, end, headers);

		if (version < 0)
			return;
		headers += version >> 4 == 4 ? (version & 0xf) * 4 : 40;
	}
	info = bpf_rdonly_cast(s->head + s->end, bpf_core_type_id_kernel(struct skb_shared_info));
	if (info->gso_type & FT_GSO_TCP) {
		int offset = ft_byte_at(skb, data, end, headers + 12);

		if (offset < 0)
			return;
		headers += (offset >> 4) * 4;
	} else if (info->gso_type & FT_GSO_UDP_L4) {
		headers += 8;
	} else if (size == FT_GSO_BY_FRAGS) {
		headers += FT_SCTP_HEADER;
	}
	if (headers >= len)
		return;
	w->packets = skb->gso_segs;
	if (!w->packets)
		w->packets = (len - headers + size - 1) / size;
	w->bytes = len + (w->packets - 1) * headers;
}

#define FT_GUESSES 32

/*
 * ft_segments for a kernel without BTF, where a program does not see behind its context. It looks for the number of segments
 * and the length of their headers that give wire_len. Behind a program that has changed the frame it is not exact.
 */
static __always_inline void ft_guess_segments(struct __sk_buff *skb, struct ft_wire *w)
{
	const __u32 len = skb->len, size = skb->gso_size, all = skb->wire_len;
	__u32 n = (len + size - 1) / size;

	for (int i = 0; i < FT_GUESSES && n > 1 && all > len; i++, n--) {
		__u32 headers = (all - len) / (n - 1);

		if (headers * (n - 1) == all - len && headers < len && (len - headers + size - 1) / size == n) {
			w->packets = n;
			w->bytes = all;
			return;
		}
	}
}

/*
 * The lengths of the tag and of the header of BIG TCP are computed again: results kept from
 * before the search would be states that the verifier follows through it one by one.
 */
static __always_inline struct ft_wire ft_on_wire(struct __sk_buff *skb, _Bool sees, _Bool bare)
{
	struct ft_wire w = { 1, skb->len };

	if (skb->gso_size) {
		__u64 segs = skb->gso_segs, all = skb->wire_len;

		if (sees && (!segs || !FT_CONST(egress) || skb->gso_size == FT_GSO_BY_FRAGS)) {
			ft_segments(skb, &w);
		} else if (!segs) {
			ft_guess_segments(skb, &w);
		} else {
			w.packets = segs;
			if (all > w.bytes) { /* a test run does not compute it */
				w.bytes = all;
				/* wire_len has the header of SCTP once, and each segment has one. */
				if (skb->gso_size == FT_GSO_BY_FRAGS)
					w.bytes += (segs - 1) * FT_SCTP_HEADER;
			}
		}
	}
	if (bare)
		w.bytes += ETH_HLEN * w.packets;
	if (skb->vlan_present)
		w.bytes += 4 * w.packets;
	if (ft_has_jumbo(skb, bare))
		w.bytes -= FT_JUMBO_LEN * w.packets;
	return w;
}
