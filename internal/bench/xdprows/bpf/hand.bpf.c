// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * A counter as somebody writes it for one flow, and for that flow alone: UDP to one address and port, over IPv4 without
 * options. It knows the flow when it is compiled, and counts packets and bytes in a per-CPU array.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct hand_count {
	__u64 packets;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hand_count);
} hand_counts SEC(".maps");

SEC("xdp")
int hand(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);

	if ((void *)(udp + 1) > data_end)
		return XDP_PASS;
	if (eth->h_proto != bpf_htons(ETH_P_IP))
		return XDP_PASS;
	if (ip->version != 4 || ip->ihl != 5)
		return XDP_PASS;
	if (ip->frag_off & bpf_htons(0x3fff))
		return XDP_PASS;
	if (ip->protocol != IPPROTO_UDP)
		return XDP_PASS;
	if (ip->daddr != bpf_htonl(0xc0000201)) /* 192.0.2.1 */
		return XDP_PASS;
	if (udp->dest != bpf_htons(53))
		return XDP_PASS;

	__u32 key = 0;
	struct hand_count *count = bpf_map_lookup_elem(&hand_counts, &key);

	if (!count)
		return XDP_PASS;
	count->packets++;
	count->bytes += data_end - data;
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
