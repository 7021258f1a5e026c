// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The programs that the bench measures: the program of package xdp itself, an empty one,
 * and the peer, which is the same parser in front of a BPF hash and a per-CPU array.
 * The spread forms begin with the same few instructions that make the packet
 * one of 65,536 in a random order.
 */
#include "../../../../xdp/bpf/flowtally.bpf.c"

struct bench_key {
	__u64 hot;
	__u64 addr;
};

struct bench_value {
	__u64 packets;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct bench_key);
	__type(value, __u32);
} bench_hash SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, struct bench_value);
} bench_values SEC(".maps");

/* Where the pseudo-random sequence stands; one CPU runs the spread rows. */
__u64 bench_seq SEC(".data.bench");

SEC("xdp.frags")
int bench_empty(struct xdp_md *ctx)
{
	return XDP_PASS;
}

/* Source address 10.f.f.x and source port of flow f; x and the rest of the packet stay. */
static __always_inline int bench_spread(struct xdp_md *ctx)
{
	void *p = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 seq = *(volatile __u64 *)&bench_seq * 6364136223846793005ULL + 1442695040888963407ULL;

	*(volatile __u64 *)&bench_seq = seq;
	if (p + 38 > end)
		return -1;
	__u32 flow = seq >> 48;

	*(__u16 *)(p + 27) = flow;
	*(__u16 *)(p + 34) = flow ^ flow >> 3;
	return 0;
}

SEC("xdp.frags")
int bench_empty_spread(struct xdp_md *ctx)
{
	bench_spread(ctx);
	return XDP_PASS;
}

SEC("xdp.frags")
int bench_ours_spread(struct xdp_md *ctx)
{
	if (bench_spread(ctx))
		return XDP_PASS;
	struct ft_key k;
	struct ft_parsed is;
	void *start = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (!FT_PARSE(xdp, ctx, &k, &is, start, end, 0, ft_length(ctx, end - start)))
		return XDP_PASS;
	__u64 slot = ft_classify(&k, &is);

	if (!slot)
		return XDP_PASS;
	ft_count(slot, 1, ft_length_again(ctx));
	return XDP_PASS - (slot & FT_DROP);
}

static __always_inline int bench_peer_body(struct xdp_md *ctx)
{
	void *p = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ft_key k;
	struct bench_key key;

	if (p + FT_COMMON_MIN > end || !FT_IS_COMMON4(p) || !ft_parse_common4((struct ft_tagged){ p }, p, end, &k, &key.hot, &key.addr))
		return XDP_PASS;
	__u32 *id = bpf_map_lookup_elem(&bench_hash, &key);

	if (!id)
		return XDP_PASS;
	struct bench_value *v = bpf_map_lookup_elem(&bench_values, id);

	if (!v)
		return XDP_PASS;
	v->packets++;
	v->bytes += ft_length(ctx, end - p);
	return XDP_PASS;
}

SEC("xdp.frags")
int bench_peer(struct xdp_md *ctx)
{
	return bench_peer_body(ctx);
}

SEC("xdp.frags")
int bench_peer_spread(struct xdp_md *ctx)
{
	if (bench_spread(ctx))
		return XDP_PASS;
	return bench_peer_body(ctx);
}
