// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * A counter of destination prefixes as somebody writes it with the kernel's own map for them: a trie finds the longest
 * prefix, and a per-CPU array has its packets and bytes.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define LPM_PREFIXES 16384

struct lpm_key {
	__u32 bits;
	__be32 address;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC); /* the kernel asks for it */
	__uint(max_entries, LPM_PREFIXES);
	__type(key, struct lpm_key);
	__type(value, __u32); /* the place of the counter */
} lpm_prefixes SEC(".maps");

struct lpm_count {
	__u64 packets;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LPM_PREFIXES);
	__type(key, __u32);
	__type(value, struct lpm_count);
} lpm_counts SEC(".maps");

SEC("xdp.frags")
int lpm(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);

	if ((void *)(ip + 1) > data_end)
		return XDP_PASS;
	if (eth->h_proto != bpf_htons(ETH_P_IP))
		return XDP_PASS;

	struct lpm_key key = { .bits = 32, .address = ip->daddr };
	__u32 *place = bpf_map_lookup_elem(&lpm_prefixes, &key);

	if (!place)
		return XDP_PASS;
	struct lpm_count *count = bpf_map_lookup_elem(&lpm_counts, place);

	if (!count)
		return XDP_PASS;
	count->packets++;
	count->bytes += data_end - data;
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
