// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * A program that counts one packet as the packet path does, when user space on another CPU says so.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include "../../../../xdp/bpf/tables.h"

#define WIRE_SLOTS 8
#define WIRE_LOOKS 8192 /* about 30 us, during which the CPU handles no softirq */

struct wire {
	/* User space writes. */
	__u64 said; /* so many packets may be counted */
	__u64 spare[15];
	__u64 slot[WIRE_SLOTS]; /* of the tables, on which packets count in turns */
	/* The program writes. */
	__u64 counted; /* packets so far */
	__u64 at;      /* when the last was counted, on CLOCK_MONOTONIC */
	__u64 spare2[6];
};

struct wire wire SEC(".data.wire");

static long wire_heard(__u32 i, void *next)
{
	return *(volatile __u64 *)&wire.said >= *(__u64 *)next;
}

/* A packet that it does not count within its time is XDP_ABORTED. */
SEC("xdp.frags")
int wire_count(struct xdp_md *ctx)
{
	__u64 next = wire.counted + 1;
	__u64 length = (void *)(long)ctx->data_end - (void *)(long)ctx->data;

	bpf_loop(WIRE_LOOKS, wire_heard, &next, 0);
	if (*(volatile __u64 *)&wire.said < next)
		return XDP_ABORTED;
	ft_count(wire.slot[next % WIRE_SLOTS], 1, length);
	wire.at = bpf_ktime_get_ns();
	wire.counted = next;
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
