/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once
/* A frame while it is parsed, and its Ethernet header and tags into a key. */
#include <stddef.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include "config.h"

#define FT_TAG_8100 bpf_htons(0x8100)
#define FT_TAG_88A8 bpf_htons(0x88a8)

#define ft_load8(p, off) (*(const __u8 *)((p) + (off)))
#define ft_load16(p, off) (*(const __u16 *)((p) + (off)))
#define ft_load32(p, off) (*(const __u32 *)((p) + (off)))
#define ft_load64(p, off) (*(const __u64 *)((p) + (off)))

/* One level while it is parsed. FT_INCOMPLETE is set until the walk over its headers has come to their end; without FT_N_L4 it stays. */
struct ft_level {
	__u64 addr;
	__u32 l4;
	__u32 proto;
	__u32 flags;
	__u32 tcp_flags;
	__s32 room; /* bytes above IP by the lengths of IP, in a first fragment; behind them is padding */
	__u16 type; /* EtherType behind the tags, network order */
};

/*
 * A frame, or a copy of its headers. walk goes over the extension headers. The compiler inlines, so that walk is known
 * at each call. reach is a mask of offsets: no header begins behind it.
 */
struct ft_frame {
	void *data, *end, *ctx;
	__u32 (*walk)(void *ctx, __u32 off, __u32 nh);
	__u32 reach;
};

/*
 * Up to two tags, one less when the kernel holds the outer one beside the frame: tagged, and its TCI in network order.
 * type is the EtherType before next.
 */
static __always_inline void *ft_parse_tags(void *next, void *end, struct ft_level *l, __u64 *w, __u32 need, __u16 type,
					   _Bool tagged, __u16 tci)
{
	__u64 tags = 0;

	if (tagged) {
		l->flags |= FT_TAG1;
		tags = FT_PACK(tci, 0, 2);
	}
	if (type == FT_TAG_8100 || type == FT_TAG_88A8) {
		if (next + 4 <= end) {
			__u16 t = ft_load16(next, 0);

			tags |= tagged ? FT_PACK(t, 2, 2) : FT_PACK(t, 0, 2);
			l->flags |= tagged ? FT_TAG2 : FT_TAG1;
			type = ft_load16(next, 2);
			next += 4;
			if (!tagged && (type == FT_TAG_8100 || type == FT_TAG_88A8) && next + 4 <= end) {
				tags |= FT_PACK(ft_load16(next, 0), 2, 2);
				l->flags |= FT_TAG2;
				type = ft_load16(next, 2);
				next += 4;
			}
		}
	}
	if (need & FT_N_TAGS)
		w[FT_W_TAGS] = tags;
	l->type = type;
	return next;
}

/* Ethernet and its tags. NULL: nothing behind it can be parsed. */
static __always_inline void *ft_parse_eth(void *p, void *end, struct ft_level *l, __u64 *w, __u32 need, __u64 src_spare,
					  _Bool tagged, __u16 tci)
{
	if (p + ETH_HLEN > end)
		return NULL;
	l->flags |= FT_ETH;
	void *next = ft_parse_tags(p + ETH_HLEN, end, l, w, need, ft_load16(p, 12), tagged, tci);

	if (need & FT_N_ETH) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
		w[FT_W_DST] = (ft_load64(p, 0) & 0xffffffffffffULL) | FT_PACK(l->type, 6, 2);
		w[FT_W_SRC] = ft_load64(p, 4) >> 16 | src_spare;
#else
		w[FT_W_DST] = (ft_load64(p, 0) & ~0xffffULL) | FT_PACK(l->type, 6, 2);
		w[FT_W_SRC] = ft_load64(p, 4) << 16 | src_spare;
#endif
	}
	return next;
}
