/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once
/*
 * Sets in the key. A pair is a set and an address of a level: the programs ask whether the set has the address, and the answer is a
 * bit above the flow label, in the word FT_W_MISC of the level. Rules compare it as any other bit. A pair of an address that the
 * packet lacks leaves its bit 0.
 */
#include "config.h"
#include "members.h"

/* The fields of a pair. */
#define FT_P_SET (FT_MAX_SETS - 1)
#define FT_P_DST 64
#define FT_P_IPV6 128

/*
 * Lookups are global functions, so that the verifier looks at each once, and not for every pair. A mask bounds the number of the set:
 * the compiler may put the number on the stack ahead of a comparison.
 */
__noinline __u32 ft_has4(__u32 set, __u32 address)
{
	return ft_member4(set & FT_P_SET, address);
}

__noinline __u32 ft_has6(__u32 set, __u64 hi, __u64 lo)
{
	return ft_member6(set & FT_P_SET, hi, lo);
}

/* The need of a pair. */
#define FT_N_PAIR(level, i) ((__u64)FT_N_SET << (i) << ((level) ? FT_N_INNER : 0))

/* The answers for the pairs of one level, whose words are w. package fold leaves the code of those pairs that some rule needs. */
static __always_inline void ft_ask_level(__u64 *w, const int level)
{
	const __u64 hot = w[FT_W_HOT];
	__u32 answers = 0;

	_Pragma("unroll") for (int i = 0; i < FT_PAIRS; i++)
	{
		if (level && i >= FT_INNER_PAIRS)
			continue;
		if (!(FT_CONST(need) & FT_N_PAIR(level, i)))
			continue;
		const __u32 pair = FT_CONST(pair[level][i]);

		if (pair & FT_P_IPV6) {
			if (hot & FT_PACK(FT_IPV6, 6, 2)) {
				const __u32 at = pair & FT_P_DST ? FT_W_ADDR6 + 1 : FT_W_ADDR;

				answers |= (ft_has6(pair & FT_P_SET, bpf_be64_to_cpu(w[at]), bpf_be64_to_cpu(w[at + 1])) & 1) << i;
			}
		} else if (hot & FT_PACK(FT_IPV4, 6, 2)) {
			const __u64 addresses = bpf_be64_to_cpu(w[FT_W_ADDR]);

			answers |= (ft_has4(pair & FT_P_SET, pair & FT_P_DST ? addresses : addresses >> 32) & 1) << i;
		}
	}
	w[FT_W_MISC] |= FT_PACK(bpf_htonl(answers << FT_SET_SHIFT), 4, 4);
}

/* Puts the answers for all pairs into a key with all other words. */
__noinline int ft_ask(struct ft_key *k)
{
	if (!k)
		return 0;
	if (FT_CONST(need) & FT_N_OUTER_SETS)
		ft_ask_level(k->w, 0);
	if (FT_CONST(need) & FT_N_INNER_SETS)
		ft_ask_level(k->w + FT_INNER, 1);
	return 0;
}
