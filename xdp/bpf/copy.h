/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once
/*
 * Copies of headers behind the linear part of a frame.
 *
 * A program that only counts must not pull them. A pull moves bytes of a fragment into the head. Afterwards a buffer of
 * SCTP (GSO_BY_FRAGS), or one merged by GRO as a list of fragments, has no valid segments, and Linux 6.12 crashes on it.
 * So the program copies the headers into memory of its own, and the ordinary parser reads them there.
 *
 * A copy lives for one run of the program. The next run on this CPU begins after its end.
 */
#include "parse.h"

/* A copy has at most this many bytes of a frame. Headers behind them are not seen. */
#define FT_COPIED 512

/* The mask of offsets into a copy. */
#define FT_COPY_REACH 1023

/* The verifier knows that a header begins within reach. A parser adds less than this before it compares with end. */
#define FT_COPY_SLACK 128

struct ft_copy {
	__u32 len;
	__u8 data[FT_COPY_REACH + 1 + FT_COPY_SLACK];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ft_copy);
} ft_copies SEC(".maps");

__noinline __u32 ft_walk_copy(struct ft_copy *copy, __u32 off, __u32 nh);

static __always_inline struct ft_frame ft_frame_copy(struct ft_copy *copy)
{
	void *data = copy->data, *end = data + (copy->len & FT_COPY_REACH);

	/* Hides from the compiler, and so from the verifier, that the difference of the two is known. */
	asm volatile("" : "+r"(end));
	return (struct ft_frame){ data, end, copy, (void *)ft_walk_copy, FT_COPY_REACH };
}

FT_PARSER(copy, struct ft_copy)

static __always_inline struct ft_copy *ft_this_copy(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&ft_copies, &key);
}

/*
 * Returns how many bytes of a frame of len bytes to copy: 1 to FT_COPIED. The verifier of 6.1 does not learn the bounds
 * from comparisons. It sees them by the mask, which the compiler would leave out without the barrier.
 */
static __always_inline __u32 ft_copied(__u32 len)
{
	__u32 before = (len > FT_COPIED ? FT_COPIED : len) - 1;

	asm volatile("" : "+r"(before));
	return (before & (FT_COPIED - 1)) + 1;
}

/*
 * Copies the headers of a socket buffer. The kernel refuses to read fragments in the memory of a device (devmem,
 * io_uring): then this copies the linear part alone. The copy stays empty if the kernel refuses that too.
 */
static __always_inline void ft_copy_skb(struct ft_copy *copy, struct __sk_buff *skb, __u32 beside)
{
	const __u32 linear = ft_copied(skb->data_end - skb->data);
	__u32 len = ft_copied(skb->len), at = 0;

	copy->len = 0;
	if (beside & FT_BARE) {
		if (bpf_skb_load_bytes_relative(skb, 0, copy->data, ETH_HLEN, BPF_HDR_START_MAC))
			return;
		at = ETH_HLEN;
	}
	if (bpf_skb_load_bytes(skb, 0, copy->data + at, len)) {
		if (bpf_skb_load_bytes(skb, 0, copy->data + at, linear))
			return;
		len = linear;
	}
	copy->len = at + len;
}

/* Copies the headers of a frame of XDP. The copy stays empty if the kernel refuses. */
static __always_inline void ft_copy_xdp(struct ft_copy *copy, struct xdp_md *ctx, __u32 beside)
{
	const __u32 len = ft_copied(bpf_xdp_get_buff_len(ctx));

	copy->len = 0;
	if (bpf_xdp_load_bytes(ctx, 0, copy->data, len))
		return;
	copy->len = len;
}

/* Reports whether a header may lie behind the linear part of a frame of len bytes. */
static __always_inline _Bool ft_is_cut(void *data, void *end, __u64 len)
{
	__u64 linear = end - data;

	return linear < FT_COPIED && linear < len;
}
