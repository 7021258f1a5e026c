/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_flow_abi.h: verbs_abi.h continued: flows, flow counters and completion
 * counters. Flow fields are big endian, as <infiniband/verbs.h> has them.
 *
 * A flow is one blob: struct ibv_flow_attr (20 bytes) and behind it num_of_specs
 * specs without padding, so that a spec may lie at any multiple of 4: copy each
 * out before reading it. */
#ifndef FLOWTALLY_IBVTEST_VERBS_FLOW_ABI_H
#define FLOWTALLY_IBVTEST_VERBS_FLOW_ABI_H

#include "verbs_abi.h"

enum { IBV_FLOW_ATTR_NORMAL, IBV_FLOW_ATTR_ALL_DEFAULT, IBV_FLOW_ATTR_MC_DEFAULT, IBV_FLOW_ATTR_SNIFFER };

enum {
	IBV_FLOW_ATTR_FLAGS_DONT_TRAP = 1 << 1,
	IBV_FLOW_ATTR_FLAGS_EGRESS = 1 << 2,
};

enum {
	IBV_FLOW_SPEC_ETH = 0x20,
	IBV_FLOW_SPEC_IPV4 = 0x30,
	IBV_FLOW_SPEC_IPV6 = 0x31,
	IBV_FLOW_SPEC_IPV4_EXT = 0x32,
	IBV_FLOW_SPEC_ESP = 0x34,
	IBV_FLOW_SPEC_TCP = 0x40,
	IBV_FLOW_SPEC_UDP = 0x41,
	IBV_FLOW_SPEC_VXLAN_TUNNEL = 0x50,
	IBV_FLOW_SPEC_GRE = 0x51,
	IBV_FLOW_SPEC_MPLS = 0x60,
	IBV_FLOW_SPEC_INNER = 0x100,
	IBV_FLOW_SPEC_ACTION_TAG = 0x1000,
	IBV_FLOW_SPEC_ACTION_DROP = 0x1001,
	IBV_FLOW_SPEC_ACTION_HANDLE = 0x1002,
	IBV_FLOW_SPEC_ACTION_COUNT = 0x1003,
};

struct ibv_flow_attr {
	uint32_t comp_mask;
	uint32_t type;
	uint16_t size, priority;
	uint8_t num_of_specs, port;
	uint32_t flags;
};

struct ibv_flow {
	uint32_t comp_mask;
	struct ibv_context *context;
	uint32_t handle;
};

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

/* Flow counters. */

enum { IBV_COUNTER_PACKETS, IBV_COUNTER_BYTES };
enum { IBV_READ_COUNTERS_ATTR_PREFER_CACHED = 1 << 0 };

struct ibv_counters_init_attr {
	uint32_t comp_mask;
};

struct ibv_counters {
	struct ibv_context *context;
};

struct ibv_counter_attach_attr {
	uint32_t counter_desc, index, comp_mask;
};

/* Completion counters, IBVERBS_1.18. */

enum { IBV_COMP_CNTR_TYPE_WRS, IBV_COMP_CNTR_TYPE_BYTES };

enum {
	IBV_QP_ATTACH_COMP_CNTR_OP_SEND = 1 << 0,
	IBV_QP_ATTACH_COMP_CNTR_OP_RECV = 1 << 1,
	IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ = 1 << 2,
	IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ = 1 << 3,
	IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE = 1 << 4,
	IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE = 1 << 5,
};

struct ibv_comp_cntr_caps {
	uint64_t max_value;
	uint32_t max_counters, supported_qp_attach_ops;
};

struct ibv_comp_cntr {
	struct ibv_context *context;
	uint32_t handle;
};

struct ibv_comp_cntr_init_attr {
	uint32_t comp_mask, type, flags;
};

struct ibv_qp_attach_comp_cntr_attr {
	uint32_t comp_mask, op_mask;
};

#endif
