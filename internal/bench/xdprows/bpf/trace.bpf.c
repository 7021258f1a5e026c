// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Programs of the bench that do not include the classifier: one that makes the packet the next one of a trace
 * and then runs another program, and the linear matcher that classifiers are compared with.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

/* A packet of the trace, in the widths in which parsers read it: a load of more than one store waits for both. */
struct trace_packet {
	__u64 addresses;
	__u32 ports;
	__u32 proto;
};

#define TRACE_PACKETS 65536 /* a power of two */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, TRACE_PACKETS);
	__type(key, __u32);
	__type(value, struct trace_packet);
} trace_packets SEC(".maps");

/* The program that each trace_N runs on its packets. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u32);
} trace_next SEC(".maps");

/* Places in the trace. One CPU runs these programs. */
__u32 trace_at[4] SEC(".data.trace");

/* Programs with places of their own, so that each sees the same packets, and a constant index, which the
 * kernel turns into a direct jump. */
#define TRACE(n)                                                                            \
	SEC("xdp.frags")                                                                    \
	int trace_##n(struct xdp_md *ctx)                                                   \
	{                                                                                   \
		void *p = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;      \
		volatile __u32 *at = &trace_at[n];                                          \
		__u32 i = *at & (TRACE_PACKETS - 1);                                        \
		const struct trace_packet *t = bpf_map_lookup_elem(&trace_packets, &i);     \
                                                                                            \
		*at = i + 1;                                                                \
		if (!t || p + 38 > end)                                                     \
			return XDP_ABORTED;                                                 \
		*(__u8 *)(p + 23) = t->proto;                                               \
		*(__u64 *)(p + 26) = t->addresses;                                          \
		*(__u32 *)(p + 34) = t->ports;                                              \
		bpf_tail_call(ctx, &trace_next, n);                                         \
		return XDP_ABORTED;                                                         \
	}

TRACE(0)
TRACE(1)
TRACE(2)
TRACE(3)

SEC("xdp.frags")
int trace_empty(struct xdp_md *ctx)
{
	return XDP_PASS;
}

/* A rule of the linear matcher: 32 bytes, of which it reads the first 16 of a rule that does not match
 * the addresses. Ports are in host order. A rule that matches no packet ends the list. */
struct linear_rule {
	__u64 mask;
	__u64 value;
	__u16 src_first, src_last;
	__u16 dst_first, dst_last;
	__u16 proto_mask, proto;
	__u32 counter;
};

#define LINEAR_CHUNK 64
#define LINEAR_CHUNKS 256

struct linear_chunk {
	struct linear_rule rule[LINEAR_CHUNK];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LINEAR_CHUNKS);
	__type(key, __u32);
	__type(value, struct linear_chunk);
} linear_rules SEC(".maps");

struct linear_value {
	__u64 packets;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LINEAR_CHUNK * LINEAR_CHUNKS);
	__type(key, __u32);
	__type(value, struct linear_value);
} linear_values SEC(".maps");

__u32 linear_chunks SEC(".data.linear");

/* The counter of the first rule of a chunk that matches, plus 1; 0 if no rule does. */
__attribute__((noinline)) int linear_search(__u32 chunk, __u64 addresses, __u64 ports, __u32 proto)
{
	struct linear_chunk *c = bpf_map_lookup_elem(&linear_rules, &chunk);
	__u16 src = ports >> 16, dst = ports;

	if (!c)
		return 0;
	for (__u32 i = 0; i < LINEAR_CHUNK; i++) {
		const struct linear_rule *r = &c->rule[i];

		if ((addresses & r->mask) != r->value)
			continue;
		if ((proto & r->proto_mask) == r->proto && src >= r->src_first && src <= r->src_last && dst >= r->dst_first &&
		    dst <= r->dst_last)
			return r->counter + 1;
	}
	return 0;
}

SEC("xdp.frags")
int trace_linear(struct xdp_md *ctx)
{
	void *p = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 chunks = linear_chunks;

	if (p + 38 > end || *(__u16 *)(p + 12) != bpf_htons(0x0800) || *(__u8 *)(p + 14) != 0x45 || *(__u16 *)(p + 20) & bpf_htons(0x3fff))
		return XDP_PASS;
	__u64 addresses = *(__u64 *)(p + 26);
	__u32 proto = *(__u8 *)(p + 23);
	__u32 ports = proto == 6 || proto == 17 ? bpf_ntohl(*(__u32 *)(p + 34)) : 0;

	for (__u32 i = 0; i < LINEAR_CHUNKS && i < chunks; i++) {
		__u32 id = linear_search(i, addresses, ports, proto);

		if (!id)
			continue;
		id--;
		struct linear_value *v = bpf_map_lookup_elem(&linear_values, &id);

		if (v) {
			v->packets++;
			v->bytes += ctx->data_end - ctx->data;
		}
		return XDP_PASS;
	}
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
