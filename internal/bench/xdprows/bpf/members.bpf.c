// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Is an address in a set? Programs that differ in how they find the answer. Each takes the next address of a trace, and counts the
 * answers, so that a test can compare them.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include "../../../../xdp/bpf/members.h"

#define MEMBERS_PACKETS 65536 /* a power of two */

/* An address in the order of the host; one of IPv4 is in the last 32 bits of lo. */
struct members_packet {
	__u64 hi, lo;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MEMBERS_PACKETS);
	__type(key, __u32);
	__type(value, struct members_packet);
} members_packets SEC(".maps");

/* By address of the trace: the last answer. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MEMBERS_PACKETS);
	__type(key, __u32);
	__type(value, __u64);
} members_answers SEC(".maps");

const volatile __u32 members_keep; /* 1: the answers are kept */

__u64 members_at SEC(".data.at");
__u64 members_found SEC(".data.found");

#define NEXT(i, t)                                                                        \
	volatile __u64 *at = &members_at;                                                 \
	__u32 i = *at & (MEMBERS_PACKETS - 1);                                            \
	const volatile struct members_packet *t = bpf_map_lookup_elem(&members_packets, &i); \
                                                                                          \
	*at = i + 1;                                                                      \
	if (!t)                                                                           \
		return XDP_ABORTED;

static __always_inline int keep(__u32 i, __u64 is)
{
	*(volatile __u64 *)&members_found += is;
	if (members_keep) {
		__u64 *answer = bpf_map_lookup_elem(&members_answers, &i);

		if (answer)
			*answer = is;
	}
	return XDP_PASS;
}

/* Without a set: what the others pay for the trace. */
SEC("xdp.frags")
int members_none(struct xdp_md *ctx)
{
	NEXT(i, t)
	return keep(i, t->lo & 1);
}

SEC("xdp.frags")
int members_ours4(struct xdp_md *ctx)
{
	NEXT(i, t)
	return keep(i, ft_member4(0, t->lo));
}

SEC("xdp.frags")
int members_ours6(struct xdp_md *ctx)
{
	NEXT(i, t)
	return keep(i, ft_member6(0, t->hi, t->lo));
}

/* The kernel's own map. */
struct members_key4 {
	__u32 bits;
	__be32 address;
};

struct members_key6 {
	__u32 bits;
	__be32 address[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 20);
	__type(key, struct members_key4);
	__type(value, __u8);
} members_lpm4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 20);
	__type(key, struct members_key6);
	__type(value, __u8);
} members_lpm6 SEC(".maps");

SEC("xdp.frags")
int members_trie4(struct xdp_md *ctx)
{
	NEXT(i, t)
	struct members_key4 key = { 32, __builtin_bswap32(t->lo) };

	return keep(i, bpf_map_lookup_elem(&members_lpm4, &key) ? 1 : 0);
}

SEC("xdp.frags")
int members_trie6(struct xdp_md *ctx)
{
	NEXT(i, t)
	__u64 hi = t->hi, lo = t->lo;
	struct members_key6 key = { 128, { __builtin_bswap32(hi >> 32), __builtin_bswap32(hi), __builtin_bswap32(lo >> 32), __builtin_bswap32(lo) } };

	return keep(i, bpf_map_lookup_elem(&members_lpm6, &key) ? 1 : 0);
}

/*
 * Candidates that lost, over memory of their own. For all of them: a hash of slots of 64 bits, each a key, with eight in a line
 * as ours has them. members_form says which one the program is.
 */
__u64 members_words[8] SEC(".data.words");

struct members_layout {
	__u64 mul, add, fold;
	__u32 filter, filter_shift; /* a bitmap by the first bits; shift 0: none */
	__u32 table;                /* by the first 16 bits, 8 bytes each */
	__u32 slots, shift;
	__u32 nodes;                /* of the multibit trie: 256 entries of 4 bytes */
	__u32 leaves;               /* of the multibit trie: 32 bytes */
	__u32 last;
};

const volatile struct members_layout members_l;

#define WORDS(at)                                               \
	({                                                      \
		__u64 _at = (at);                               \
		__u64 *_p = members_words;                      \
                                                                \
		asm volatile("" : "+r"(_at));                   \
		if (_at > members_l.last)                       \
			return 0;                               \
		asm volatile("" : "+r"(_p), "+r"(_at));         \
		(const volatile __u64 *)((void *)_p + _at);     \
	})

static __always_inline __u64 members_hash(__u64 key)
{
	__u64 h = key * members_l.mul + members_l.add;

	h ^= h >> 32;
	h *= members_l.fold;
	return h ^ h >> 29;
}

static __always_inline _Bool members_probe(__u64 key)
{
	__u64 at = members_l.slots + (members_hash(key) >> members_l.shift) * 64;

#pragma clang loop unroll(disable)
	for (int line = 0; line < 16; line++) {
		const volatile __u64 *slots = WORDS(at);
		__u64 slot;

#pragma unroll
		for (int i = 0; i < 8; i++) {
			slot = slots[i];
			if (slot == key)
				return 1;
		}
		if (!slot)
			return 0;
		at += 64;
	}
	return 0;
}

/* A slot for each element: the table has the lengths that exist below 16 bits, bit l-16 for the length l, bit 0 if all is covered. */
static __always_inline _Bool members_lengths(__u64 a)
{
	if (members_l.filter_shift) {
		__u64 bit = a >> members_l.filter_shift;

		if (!(*WORDS(members_l.filter + (bit >> 6) * 8) >> (bit & 63) & 1))
			return 0;
	}
	__u64 lengths = *WORDS(members_l.table + (a >> 16) * 8);

	if (lengths & 1)
		return 1;
	lengths >>= 1;
	for (__u32 length = 17; length <= 32 && lengths; length++, lengths >>= 1)
		if (lengths & 1 && members_probe((a >> (32 - length)) << 8 | length))
			return 1;
	return 0;
}

SEC("xdp.frags")
int members_bylength(struct xdp_md *ctx)
{
	NEXT(i, t)
	return keep(i, members_lengths((__u32)t->lo));
}

/* A trie of 16, 8 and 8 bits: the last step is a bitmap of 256 addresses. An entry: 0 none, 1 all, else a number from 2 on. */
static __always_inline _Bool members_multibit(__u64 a)
{
	__u64 e = (__u32)(*WORDS(members_l.table + (a >> 17) * 8) >> (a >> 16 & 1) * 32);

	if (e <= 1)
		return e;
	e = (__u32)(*WORDS(members_l.nodes + (e - 2) * 1024 + (a >> 9 & 127) * 8) >> (a >> 8 & 1) * 32);
	if (e <= 1)
		return e;
	return *WORDS(members_l.leaves + (e - 2) * 32 + (a >> 6 & 3) * 8) >> (a & 63) & 1;
}

SEC("xdp.frags")
int members_multi(struct xdp_md *ctx)
{
	NEXT(i, t)
	return keep(i, members_multibit((__u32)t->lo));
}

/* A code of two bits for each of 2^24 prefixes, and behind it slots as ours. */
static __always_inline _Bool members_coded(__u64 a)
{
	__u64 code = *WORDS(members_l.table + (a >> 13) * 8) >> (a >> 7 & 62) & 3;

	if (code <= 1)
		return code;
	__u64 key = a >> 5 | 1 << 27;
	__u64 at = members_l.slots + (members_hash(key) >> members_l.shift) * 64;

#pragma clang loop unroll(disable)
	for (int line = 0; line < 16; line++) {
		const volatile __u64 *slots = WORDS(at);
		__u64 slot;

#pragma unroll
		for (int i = 0; i < 8; i++) {
			slot = slots[i];
			if (slot >> 32 == key)
				return slot >> (a & 31) & 1;
		}
		if (!slot)
			return 0;
		at += 64;
	}
	return 0;
}

SEC("xdp.frags")
int members_codes(struct xdp_md *ctx)
{
	NEXT(i, t)
	return keep(i, members_coded((__u32)t->lo));
}

/* The floor: one load of a random line of the slots. */
SEC("xdp.frags")
int members_load(struct xdp_md *ctx)
{
	NEXT(i, t)
	__u64 line = members_l.slots + (members_hash((__u32)t->lo) >> members_l.shift) * 64;

	asm volatile("" : "+r"(line));
	if (line > members_l.last)
		return XDP_ABORTED;
	return keep(i, *(volatile __u64 *)((void *)members_words + line) >> 63);
}

char _license[] SEC("license") = "Dual BSD/GPL";
