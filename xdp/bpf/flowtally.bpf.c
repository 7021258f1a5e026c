// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The two programs. Both are: frame → key → slot of the rule that wins → one
 * counter of this CPU.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include "parse.h"
#include "tables.h"

/* TCX_NEXT and TCX_DROP, which headers before 6.6 do not have; clsact reads them as UNSPEC and SHOT. */
#define FT_NEXT -1
#define FT_SHOT 2

/* Emitted for its BTF, which Go's Headers is compared with. */
struct ft_headers ft_headers_btf SEC(".data.btf");

SEC("xdp.frags")
int flowtally_xdp(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ft_key k;
	__u64 hot, addr;

	ft_parse(data, end, &k, &hot, &addr, 0, 0);
	__u64 slot = ft_classify(&k, hot, addr);

	if (!slot)
		return XDP_PASS;
	ft_count(slot, 1, ft_conf.buff_len ? bpf_xdp_get_buff_len(ctx) : end - data);
	return (__s64)slot < 0 ? XDP_DROP : XDP_PASS;
}

/*
 * Egress sees socket buffers: several segments at once (gso_segs; wire_len is
 * what they come to with a copy of the headers each), the outer tag beside
 * the frame, and perhaps only the start of it in linear memory.
 */
#define FT_PULL 512

SEC("tcx/egress")
int flowtally_tcx(struct __sk_buff *skb)
{
	struct ft_key k;
	__u64 hot, addr;

	if (skb->data_end - skb->data < FT_PULL && skb->data_end - skb->data < skb->len)
		bpf_skb_pull_data(skb, skb->len < FT_PULL ? skb->len : FT_PULL);
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__u32 tagged = skb->vlan_present;

	if (tagged)
		ft_parse(data, end, &k, &hot, &addr, 1, skb->vlan_tci);
	else
		ft_parse(data, end, &k, &hot, &addr, 0, 0);
	__u64 slot = ft_classify(&k, hot, addr);

	if (!slot)
		return FT_NEXT;
	__u64 segs = skb->gso_segs;

	if (!segs)
		segs = 1;
	ft_count(slot, segs, skb->wire_len + (tagged ? 4 * segs : 0));
	return (__s64)slot < 0 ? FT_SHOT : FT_NEXT;
}

char _license[] SEC("license") = "Dual BSD/GPL";
