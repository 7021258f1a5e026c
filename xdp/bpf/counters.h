/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once
/*
 * Counters: one block per possible CPU, pages of its own, so no atomics. A slot
 * is two words: packets, and 256 * bytes + packets, stored in this order. A reader
 * on another CPU that finds the second word unchanged around the first, and their
 * low bytes equal, holds packets and the bytes of exactly those, in whichever order the
 * two stores became visible; where stores become visible in order the low bytes
 * also tell by how many packets the first is ahead. Slots are never zeroed.
 *
 * Behind the slots of a block stand its marks, one word for 4 counters. Every update raises the mark
 * of its counter, after its two stores: a reader that finds the marks of all CPUs as they were
 * before it read the slots has the present values.
 */
#include <bpf/bpf_helpers.h>
#include "config.h"

/*
 * The layout of a rule's slot in the tables, for every classifier:
 *   bit 0 drop | 5..28 offset of its entry | 29..48 counter | 49..63 tag
 */
#define FT_DROP 1
#define FT_COUNTER(slot) ((slot) >> 25 & FT_CONST(counter_mask))
#define FT_TAG(slot) ((slot) >> 49)

/* Sections are resized at load; the size here is a placeholder that the compiler must not reason from. */
__u64 ft_counters[8] SEC(".data.counters");
__u64 ft_entries[8] SEC(".data.entries");

static __always_inline __u64 *ft_opaque(__u64 *p)
{
	asm volatile("" : "+r"(p));
	return p;
}

/* The mark of a slot at that offset, in bytes from the first mark. */
#define FT_MARK(at) ((at) >> 6 << 2)

/* Raises a mark, after every store before it (barrier mark-release). */
static __always_inline void ft_mark(volatile __u32 *mark)
{
	if (FT_CONST(in_order)) {
		*mark += 1;
	} else {
		/* An atomic operation that returns the old value is a full barrier for every CPU. */
		__u32 old = __sync_fetch_and_add(mark, 1);

		asm volatile("" : : "r"(old));
	}
}

static __always_inline void ft_add(volatile __u64 *c, __u64 n, __u64 bytes)
{
	c[0] += n;
	c[1] += (bytes << 8) + n;
}

/* bpf_get_smp_processor_id. libbpf declares a result of 32 bits, and the compiler would clear the upper half again. */
static __u64 (*const ft_cpu)(void) = (void *)BPF_FUNC_get_smp_processor_id;

/* Counts n packets and their bytes on the counter of a slot, on the CPU with that number. Returns the FT_DROP of the slot. */
static __always_inline __u64 ft_count_on(__u64 cpu, __u64 slot, __u64 n, __u64 bytes)
{
	__u64 at = cpu;

	/*
	 * Never. Linux 6.18 knows that and removes the test, if no other way leads behind it: so the block has an
	 * instruction.
	 */
	if (at >= FT_CONST(cpus)) {
		FT_ASIDE;
		asm volatile("%0 &= %1" : "+r"(slot) : "i"(FT_DROP));
		return slot;
	}

	/* In this order: the verifier of 6.1 knows nothing of a product whose second factor is no constant. */
	asm volatile("%0 *= %1" : "+r"(at) : "r"(FT_CONST(cpu_block)));
	void *block = (void *)ft_opaque(ft_counters) + at;
	__u64 offset = FT_COUNTER(slot);
	volatile __u64 *c = block + offset;

	/* At most 255 at once, so that the low bytes tell how many. A buffer of so many segments is rare. */
	if (n > 255) {
		FT_ASIDE;
		const __u64 each = bytes / n;

		for (int i = 0; i < 0xffff / 255 && n > 255; i++) {
			ft_add(c, 255, 255 * each);
			bytes -= 255 * each;
			n -= 255;
		}
	}
	ft_add(c, n, bytes);
	ft_mark(block + FT_CONST(marks) + FT_MARK(offset));
	return slot & FT_DROP;
}

/* ft_count_on for this CPU. */
static __always_inline __u64 ft_count(__u64 slot, __u64 n, __u64 bytes)
{
	return ft_count_on(ft_cpu(), slot, n, bytes);
}
