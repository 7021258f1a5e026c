/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_flow_spec.h: the specs behind struct ibv_flow_attr, with the names and layouts of <infiniband/verbs.h>. Only the
 * software NIC reads them in C; the binding writes them in Go (package ibv, spec.go). */
#ifndef FLOWTALLY_IBVTEST_VERBS_FLOW_SPEC_H
#define FLOWTALLY_IBVTEST_VERBS_FLOW_SPEC_H

#include "verbs_abi.h"

enum {
	IBV_FLOW_SPEC_ETH = 0x20, IBV_FLOW_SPEC_IPV4 = 0x30, IBV_FLOW_SPEC_IPV6 = 0x31,
	IBV_FLOW_SPEC_IPV4_EXT = 0x32, IBV_FLOW_SPEC_ESP = 0x34, IBV_FLOW_SPEC_TCP = 0x40, IBV_FLOW_SPEC_UDP = 0x41,
	IBV_FLOW_SPEC_VXLAN_TUNNEL = 0x50, IBV_FLOW_SPEC_GRE = 0x51, IBV_FLOW_SPEC_MPLS = 0x60,
	IBV_FLOW_SPEC_INNER = 0x100, IBV_FLOW_SPEC_ACTION_TAG = 0x1000, IBV_FLOW_SPEC_ACTION_DROP = 0x1001,
	IBV_FLOW_SPEC_ACTION_HANDLE = 0x1002, IBV_FLOW_SPEC_ACTION_COUNT = 0x1003,
};

/* A flow is one blob: struct ibv_flow_attr (20 bytes), then num_of_specs specs without padding. A spec may
 * therefore lie at any multiple of 4. Fields of filters are big endian. */
/* The two words that every spec starts with. */
struct soft_spec_header {
	uint32_t type;
	uint16_t size;
};

struct ibv_flow_eth_filter {
	uint8_t dst_mac[6], src_mac[6];
	uint16_t ether_type, vlan_tag;
};

struct ibv_flow_spec_eth {
	uint32_t type;
	uint16_t size;
	struct ibv_flow_eth_filter val, mask;
};

struct ibv_flow_ipv4_filter {
	uint32_t src_ip, dst_ip;
};

struct ibv_flow_spec_ipv4 {
	uint32_t type;
	uint16_t size;
	struct ibv_flow_ipv4_filter val, mask;
};

struct ibv_flow_ipv4_ext_filter {
	uint32_t src_ip, dst_ip;
	uint8_t proto, tos, ttl, flags;
};

struct ibv_flow_spec_ipv4_ext {
	uint32_t type;
	uint16_t size;
	struct ibv_flow_ipv4_ext_filter val, mask;
};

struct ibv_flow_ipv6_filter {
	uint8_t src_ip[16], dst_ip[16];
	uint32_t flow_label;
	uint8_t next_hdr, traffic_class, hop_limit;
};

struct ibv_flow_spec_ipv6 {
	uint32_t type;
	uint16_t size;
	struct ibv_flow_ipv6_filter val, mask;
};

struct ibv_flow_esp_filter {
	uint32_t spi, seq;
};

struct ibv_flow_spec_esp {
	uint32_t type;
	uint16_t size;
	struct ibv_flow_esp_filter val, mask;
};

struct ibv_flow_tcp_udp_filter {
	uint16_t dst_port, src_port;
};

struct ibv_flow_spec_tcp_udp {
	uint32_t type;
	uint16_t size;
	struct ibv_flow_tcp_udp_filter val, mask;
};

struct ibv_flow_gre_filter {
	uint16_t c_ks_res0_ver, protocol;
	uint32_t key;
};

struct ibv_flow_spec_gre {
	uint32_t type;
	uint16_t size;
	struct ibv_flow_gre_filter val, mask;
};

struct ibv_flow_mpls_filter {
	uint32_t label;
};

struct ibv_flow_spec_mpls {
	uint32_t type;
	uint16_t size;
	struct ibv_flow_mpls_filter val, mask;
};

struct ibv_flow_tunnel_filter {
	uint32_t tunnel_id;
};

struct ibv_flow_spec_tunnel {
	uint32_t type;
	uint16_t size;
	struct ibv_flow_tunnel_filter val, mask;
};

struct ibv_flow_spec_action_tag {
	uint32_t type;
	uint16_t size;
	uint32_t tag_id;
};

struct ibv_flow_spec_action_drop {
	uint32_t type;
	uint16_t size;
};

struct ibv_flow_spec_counter_action {
	uint32_t type;
	uint16_t size;
	struct ibv_counters *counters;
};

#endif
