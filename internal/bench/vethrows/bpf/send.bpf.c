// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * A sender: BPF_PROG_TEST_RUN repeats the program, and each run sends the packet out of an interface, with the
 * next of so many destination ports. The far end of a veth receives it before the run ends, on the same thread.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define FIRST_PORT 1000
#define STEP 389 /* a prime: the ports come in an order that no prefetch follows, and each in its turn */

__u32 send_to SEC(".data.send"); /* ifindex */
__u32 send_ports SEC(".data.send"); /* no multiple of STEP */
__u32 send_at SEC(".data.send");
__u64 send_refused SEC(".data.send");

SEC("tc")
int send_packet(struct __sk_buff *skb)
{
	void *p = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	volatile __u32 *at = &send_at;
	__u32 ports = *(volatile __u32 *)&send_ports, i = *at + STEP;

	if (ports)
		i %= ports;
	*at = i;
	if (p + 38 > end)
		return TC_ACT_SHOT;
	*(__u16 *)(p + 36) = bpf_htons(FIRST_PORT + i);
	if (bpf_clone_redirect(skb, *(volatile __u32 *)&send_to, 0))
		(*(volatile __u64 *)&send_refused)++;
	return TC_ACT_OK;
}

SEC("xdp.frags")
int drop_all(struct xdp_md *ctx)
{
	return XDP_DROP;
}

char _license[] SEC("license") = "GPL";
