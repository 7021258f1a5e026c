// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The programs, of XDP and of TCX. Each is: frame → key → slot of the rule that wins → one
 * counter of this CPU.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include "copy.h"
#include "sets.h"
#include "skb.h"
#include "tables.h"

/* TCX_NEXT and TCX_DROP, which headers before 6.6 do not have; clsact reads them as UNSPEC and SHOT. */
#define FT_NEXT -1
#define FT_SHOT 2

/* Emitted for its BTF, with which a test compares the Go declarations. It is never loaded, because
 * no program refers to it. */
struct {
	struct ft_headers headers;
	enum ft_flags flags;
	enum ft_word word;
	enum ft_need need;
} ft_layout SEC(".data.btf");

FT_LINEAR(xdp, struct xdp_md)
FT_LINEAR(skb, struct __sk_buff)
FT_UNCOMMON(xdp, struct xdp_md)
FT_UNCOMMON(skb, struct __sk_buff)

/*
 * Parses a frame into the key k and into is. Its value is false if the EtherType alone tells that no rule matches. length is that
 * of the whole frame, linear or not. A common frame does not evaluate it.
 */
#define FT_PARSE(name, ctx, k, is, start, end, beside, length)                                       \
	({                                                                                           \
		enum ft_outcome found =                                                              \
			FT_CONST(layer3) ? FT_UNCOMMON : ft_parse_common(start, end, k, beside, is); \
                                                                                                     \
		if (found == FT_UNCOMMON) {                                                          \
			FT_PARSE_UNCOMMON(name, ctx, k, start, end, beside, length);                 \
			ft_get_hot(k, &(is)->h);                                                     \
			(is)->class = ft_class_of((is)->h.hot);                                      \
		}                                                                                    \
		found != FT_NO_RULE;                                                                 \
	})

/* The kernel's struct behind struct xdp_md. */
struct xdp_buff {
	__u32 flags;
} __attribute__((preserve_access_index));

#define FT_HAS_FRAGS 1 /* XDP_FLAGS_HAS_FRAGS */

/*
 * The length of a frame is the length of its buffer, linear, unless it has fragments: to ask the helper
 * every time costs 1 ns.
 */
static __always_inline __u64 ft_length(struct xdp_md *ctx, __u64 linear)
{
	struct xdp_buff *x = bpf_cast_to_kern_ctx(ctx);

	if (x->flags & FT_HAS_FRAGS) {
		FT_ASIDE;
		return bpf_xdp_get_buff_len(ctx);
	}
	return linear;
}

/*
 * ft_length behind a search. If pointers into the frame were kept over it, the verifier would follow the search once more for
 * each number of bytes that a parser has asked for.
 */
static __always_inline __u64 ft_length_again(struct xdp_md *ctx)
{
	asm volatile("" : "+r"(ctx));
	return ft_length(ctx, (void *)(long)ctx->data_end - (void *)(long)ctx->data);
}

/*
 * Puts the answers of sets into a key that is parsed. Programs that do it are others than those that do not: the compiler would
 * set registers aside for this call in a program that never makes it.
 */
static __always_inline void ft_ask_sets(struct ft_key *k, struct ft_parsed *is)
{
	ft_put_hot(k, &is->h);
	ft_ask(k);
	ft_get_hot(k, &is->h);
	is->class = ft_class_of(is->h.hot);
}

static __always_inline int ft_xdp(struct xdp_md *ctx, const _Bool sets)
{
	struct ft_key k;
	struct ft_parsed is;
	void *start = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (!FT_PARSE(xdp, ctx, &k, &is, start, end, 0, ft_length(ctx, end - start)))
		return XDP_PASS;
	if (sets)
		ft_ask_sets(&k, &is);
	__u64 slot = ft_classify(&k, &is);

	if (!slot) {
		FT_ASIDE;
		return XDP_PASS;
	}
	return XDP_PASS - ft_count(slot, 1, ft_length_again(ctx));
}

SEC("xdp.frags")
int flowtally_xdp(struct xdp_md *ctx)
{
	return ft_xdp(ctx, 0);
}

SEC("xdp.frags")
int flowtally_xdp_sets(struct xdp_md *ctx)
{
	return ft_xdp(ctx, 1);
}

/*
 * Reports whether a frame that ft_match_one does not know matches the only rule. A function, so that flowtally_xdp_one has no
 * key on its stack, and nothing in registers that it saves.
 */
__noinline int ft_uncommon_one(struct xdp_md *ctx)
{
	struct ft_key k;

	if (!ctx)
		return 0;
	void *start = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	FT_PARSE_UNCOMMON(xdp, ctx, &k, start, end, 0, ft_length(ctx, end - start));
	return ft_try(&k, 0) ? FT_MATCHES : FT_NO_RULE;
}

/*
 * flowtally_xdp for a single rule of IPv4, which is in ft_conf.one. It is a program of its own, because the compiler would
 * set registers aside for the searches of flowtally_xdp. What a program keeps over a call takes a register that it saves
 * for its caller: so the slot is loaded behind the last call.
 */
SEC("xdp.frags")
int flowtally_xdp_one(struct xdp_md *ctx)
{
	void *start = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	enum ft_outcome found = ft_match_one(start, end);

	if (found == FT_UNCOMMON) {
		FT_ASIDE;
		found = ft_uncommon_one(ctx);
		asm volatile("" : "+r"(ctx));
		start = (void *)(long)ctx->data;
		end = (void *)(long)ctx->data_end;
	}
	if (found != FT_MATCHES) {
		FT_ASIDE;
		return XDP_PASS;
	}
	const __u64 length = ft_length(ctx, end - start), cpu = ft_cpu(), slot = ft_single(0);

	if (!slot) {
		FT_ASIDE;
		return XDP_PASS;
	}
	return XDP_PASS - ft_count_on(cpu, slot, 1, length);
}

/* ft_xdp for kernels before 6.2, where a program does not see behind its context. */
static __always_inline int ft_xdp61(struct xdp_md *ctx, const _Bool sets)
{
	struct ft_key k;
	struct ft_parsed is;
	void *start = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (!FT_PARSE(xdp, ctx, &k, &is, start, end, 0, bpf_xdp_get_buff_len(ctx)))
		return XDP_PASS;
	if (sets)
		ft_ask_sets(&k, &is);
	__u64 slot = ft_classify(&k, &is);

	if (!slot) {
		FT_ASIDE;
		return XDP_PASS;
	}
	return XDP_PASS - ft_count(slot, 1, bpf_xdp_get_buff_len(ctx));
}

SEC("xdp.frags")
int flowtally_xdp61(struct xdp_md *ctx)
{
	return ft_xdp61(ctx, 0);
}

SEC("xdp.frags")
int flowtally_xdp61_sets(struct xdp_md *ctx)
{
	return ft_xdp61(ctx, 1);
}

static __always_inline int ft_tcx(struct __sk_buff *skb, _Bool sees, const _Bool sets)
{
	const _Bool bare = sees && ft_is_bare(skb);
	__u32 beside = skb->vlan_present ? FT_TAG_BESIDE | bpf_htons(skb->vlan_tci) : 0;

	if (bare)
		beside |= FT_BARE;
	if (ft_has_jumbo(skb, bare))
		beside |= FT_JUMBO;

	void *start = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ft_key k;
	struct ft_parsed is;

	if (!FT_PARSE(skb, skb, &k, &is, start, end, beside, skb->len))
		return FT_NEXT;
	if (sets)
		ft_ask_sets(&k, &is);
	__u64 slot = ft_classify(&k, &is);

	if (!slot) {
		FT_ASIDE;
		return FT_NEXT;
	}
	struct ft_wire w = ft_on_wire(skb, sees, bare);

	return ft_count(slot, w.packets, w.bytes) ? FT_SHOT : FT_NEXT;
}

/* On both hooks: egress in the constants tells which. */
SEC("tcx/egress")
int flowtally_tcx(struct __sk_buff *skb)
{
	return ft_tcx(skb, 1, 0);
}

SEC("tcx/egress")
int flowtally_tcx_sets(struct __sk_buff *skb)
{
	return ft_tcx(skb, 1, 1);
}

/* flowtally_tcx for kernels without BTF, where a program does not see behind its context. */
SEC("tcx/egress")
int flowtally_tcx_nobtf(struct __sk_buff *skb)
{
	return ft_tcx(skb, 0, 0);
}

SEC("tcx/egress")
int flowtally_tcx_nobtf_sets(struct __sk_buff *skb)
{
	return ft_tcx(skb, 0, 1);
}

char _license[] SEC("license") = "Dual BSD/GPL";
