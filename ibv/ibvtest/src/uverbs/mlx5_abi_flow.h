/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_abi_flow.h: flows, counters and DevX in the interface between libmlx5 and mlx5_ib: the names, sizes and values
 * of rdma/mlx5-abi.h, mlx5_user_ioctl_cmds.h and mlx5_user_ioctl_verbs.h, and of the specs in rdma/ib_user_verbs.h. */
#ifndef MLX5_ABI_FLOW_H
#define MLX5_ABI_FLOW_H

#include "mlx5_abi_kernel.h"

enum { MLX5_IB_DW_MATCH_PARAM = 0xa0 }; /* 32-bit words of struct mlx5_ib_match_params */

enum { MLX5_IB_METHOD_DEVX_OTHER = 1 << UVERBS_ID_NS_SHIFT, MLX5_IB_METHOD_DEVX_QUERY_UAR, MLX5_IB_METHOD_DEVX_QUERY_EQN };
enum { MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC = 1 << UVERBS_ID_NS_SHIFT, MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN };
enum { MLX5_IB_METHOD_DEVX_UMEM_REG = 1 << UVERBS_ID_NS_SHIFT, MLX5_IB_METHOD_DEVX_UMEM_DEREG };
enum {
	MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE = 1 << UVERBS_ID_NS_SHIFT,
	MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR,
	MLX5_IB_ATTR_DEVX_UMEM_REG_LEN,
	MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS,
	MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID,
};
enum { MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE = 1 << UVERBS_ID_NS_SHIFT };
enum { MLX5_IB_ATTR_DEVX_OTHER_CMD_IN = 1 << UVERBS_ID_NS_SHIFT, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT };

enum {
	MLX5_IB_METHOD_DEVX_OBJ_CREATE = 1 << UVERBS_ID_NS_SHIFT,
	MLX5_IB_METHOD_DEVX_OBJ_DESTROY,
	MLX5_IB_METHOD_DEVX_OBJ_MODIFY,
	MLX5_IB_METHOD_DEVX_OBJ_QUERY,
	MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY,
};
enum {
	MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE = 1 << UVERBS_ID_NS_SHIFT,
	MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN,
	MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT,
};
enum { MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE = 1 << UVERBS_ID_NS_SHIFT };
enum {
	MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE = 1 << UVERBS_ID_NS_SHIFT,
	MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN,
	MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT,
};
enum {
	MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE = 1 << UVERBS_ID_NS_SHIFT,
	MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN,
	MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT,
};
enum {
	MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE = 1 << UVERBS_ID_NS_SHIFT,
	MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN,
	MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD,
	MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID,
	MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN,
};
enum { MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC = 1 << UVERBS_ID_NS_SHIFT };
enum { MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE = 1 << UVERBS_ID_NS_SHIFT };

struct mlx5_ib_uapi_devx_async_cmd_hdr {
	uint64_t wr_id;
	uint8_t out_data[];
};

enum { MLX5_IB_METHOD_FLOW_MATCHER_CREATE = 1 << UVERBS_ID_NS_SHIFT, MLX5_IB_METHOD_FLOW_MATCHER_DESTROY };
enum {
	MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE = 1 << UVERBS_ID_NS_SHIFT,
	MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK,
	MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE,
	MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA,
	MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS,
	MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE,
	MLX5_IB_ATTR_FLOW_MATCHER_IB_PORT,
};
enum { MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE = 1 << UVERBS_ID_NS_SHIFT };
enum mlx5_ib_flow_type {
	MLX5_IB_FLOW_TYPE_NORMAL,
	MLX5_IB_FLOW_TYPE_SNIFFER,
	MLX5_IB_FLOW_TYPE_ALL_DEFAULT,
	MLX5_IB_FLOW_TYPE_MC_DEFAULT,
};
enum { MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_RX, MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_TX };

enum { MLX5_IB_METHOD_CREATE_FLOW = 1 << UVERBS_ID_NS_SHIFT, MLX5_IB_METHOD_DESTROY_FLOW };
enum {
	MLX5_IB_ATTR_CREATE_FLOW_HANDLE = 1 << UVERBS_ID_NS_SHIFT,
	MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE,
	MLX5_IB_ATTR_CREATE_FLOW_DEST_QP,
	MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX,
	MLX5_IB_ATTR_CREATE_FLOW_MATCHER,
	MLX5_IB_ATTR_CREATE_FLOW_ARR_FLOW_ACTIONS,
	MLX5_IB_ATTR_CREATE_FLOW_TAG,
	MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX,
	MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET,
	MLX5_IB_ATTR_CREATE_FLOW_FLAGS,
};
enum { MLX5_IB_ATTR_DESTROY_FLOW_HANDLE = 1 << UVERBS_ID_NS_SHIFT };
enum { MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS = 1, MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP = 2 };

struct mlx5_ib_flow_counters_desc {
	uint32_t description;
	uint32_t index;
};
struct mlx5_ib_flow_counters_data {
	uint64_t counters_data; /* address of struct mlx5_ib_flow_counters_desc */
	uint32_t ncounters;
	uint32_t reserved;
};
struct mlx5_ib_create_flow {
	uint32_t ncounters_data;
	uint32_t reserved;
	struct mlx5_ib_flow_counters_data data[];
};

/* The specs of EX_CREATE_FLOW: struct ib_uverbs_flow_spec_hdr, then a filter of values and one of masks. */
enum {
	IB_FLOW_SPEC_ETH = 0x20,
	IB_FLOW_SPEC_IPV4 = 0x30,
	IB_FLOW_SPEC_IPV6 = 0x31,
	IB_FLOW_SPEC_ESP = 0x34,
	IB_FLOW_SPEC_TCP = 0x40,
	IB_FLOW_SPEC_UDP = 0x41,
	IB_FLOW_SPEC_VXLAN_TUNNEL = 0x50,
	IB_FLOW_SPEC_GRE = 0x51,
	IB_FLOW_SPEC_MPLS = 0x60,
	IB_FLOW_SPEC_INNER = 0x100,
	IB_FLOW_SPEC_ACTION_TAG = 0x1000,
	IB_FLOW_SPEC_ACTION_DROP = 0x1001,
	IB_FLOW_SPEC_ACTION_HANDLE = 0x1002,
	IB_FLOW_SPEC_ACTION_COUNT = 0x1003,
};
enum { IB_FLOW_ATTR_NORMAL, IB_FLOW_ATTR_ALL_DEFAULT, IB_FLOW_ATTR_MC_DEFAULT, IB_FLOW_ATTR_SNIFFER };
enum { IB_FLOW_ATTR_FLAGS_DONT_TRAP = 1 << 1, IB_FLOW_ATTR_FLAGS_EGRESS = 1 << 2 };
enum { IB_COUNTER_PACKETS, IB_COUNTER_BYTES };

struct ib_uverbs_flow_spec_action {
	struct ib_uverbs_flow_spec_hdr hdr;
	uint32_t value; /* tag_id of a TAG, handle of a HANDLE or a COUNT */
	uint32_t reserved1;
};

/* Fields of filters are big-endian. */
struct ib_uverbs_flow_eth_filter {
	uint8_t dst_mac[6];
	uint8_t src_mac[6];
	uint16_t ether_type;
	uint16_t vlan_tag;
};
struct ib_uverbs_flow_ipv4_filter {
	uint32_t src_ip;
	uint32_t dst_ip;
	uint8_t proto;
	uint8_t tos;
	uint8_t ttl;
	uint8_t flags;
};
struct ib_uverbs_flow_ipv6_filter {
	uint8_t src_ip[16];
	uint8_t dst_ip[16];
	uint32_t flow_label;
	uint8_t next_hdr;
	uint8_t traffic_class;
	uint8_t hop_limit;
	uint8_t reserved;
};
struct ib_uverbs_flow_tcp_udp_filter {
	uint16_t dst_port;
	uint16_t src_port;
};
struct ib_uverbs_flow_tunnel_filter {
	uint32_t tunnel_id;
};
struct ib_uverbs_flow_spec_esp_filter {
	uint32_t spi;
	uint32_t seq;
};
struct ib_uverbs_flow_gre_filter {
	uint16_t c_ks_res0_ver;
	uint16_t protocol;
	uint32_t key;
};
struct ib_uverbs_flow_mpls_filter {
	uint32_t label;
};

#endif
