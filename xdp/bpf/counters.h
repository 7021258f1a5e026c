/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once
/*
 * Counters: one block per possible CPU, pages of its own, so no atomics. A slot
 * is two words: packets, and bytes << 8 | packets & 0xff. A reader on another
 * CPU that finds the second word unchanged around the first, and the tags
 * equal, holds the bytes of exactly those packets, in whichever order the two
 * stores became visible. Slots are never zeroed.
 */
#include <bpf/bpf_helpers.h>
#include "config.h"

/* Sections are resized at load; the size here is a placeholder that the compiler must not reason from. */
__u64 ft_counters[8] SEC(".data.counters");

static __always_inline __u64 *ft_opaque(__u64 *p)
{
	asm volatile("" : "+r"(p));
	return p;
}

/* Counts packets and their bytes on the counter of a slot. */
static __always_inline void ft_count(__u64 slot, __u64 n, __u64 bytes)
{
	__u32 cpu = bpf_get_smp_processor_id();

	if (cpu >= ft_conf.cpus)
		return;
	volatile __u64 *c = (void *)ft_opaque(ft_counters) + cpu * ft_conf.cpu_block +
			    (slot >> 24 & ft_conf.counter_mask) * 16;
	__u64 packets = c[0] + n, second = c[1];

	c[0] = packets;
	c[1] = ((second & ~0xffULL) + (bytes << 8)) | (packets & 0xff);
}
