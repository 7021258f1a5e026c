/* SPDX-License-Identifier: Apache-2.0
 *
 * uverbs_abi_cmd.h: the commands of INVOKE_WRITE and their structures, by the names of rdma/ib_user_verbs.h.
 * uverbs_abi.h includes it. */
#ifndef UVERBS_ABI_CMD_H
#define UVERBS_ABI_CMD_H

#include <stdint.h>

/* The commands that INVOKE_WRITE carries. Extended ones have IB_USER_VERBS_CMD_FLAG_EXTENDED. */
enum ib_uverbs_write_cmds {
	IB_USER_VERBS_CMD_QUERY_DEVICE = 1,
	IB_USER_VERBS_CMD_QUERY_PORT = 2,
	IB_USER_VERBS_CMD_ALLOC_PD = 3,
	IB_USER_VERBS_CMD_CREATE_AH = 5,
	IB_USER_VERBS_CMD_REG_MR = 9,
	IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL = 17,
	IB_USER_VERBS_CMD_QUERY_QP = 25,
	IB_USER_VERBS_CMD_MODIFY_QP = 26,
	IB_USER_VERBS_EX_CMD_QUERY_DEVICE = 1,
	IB_USER_VERBS_EX_CMD_CREATE_FLOW = 50,
	IB_USER_VERBS_EX_CMD_DESTROY_FLOW = 51,
};

enum {
	IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS = 1 << 0,
	IB_UVERBS_CORE_SUPPORT_ROBUST_UDATA = 1 << 1,
};

struct ib_uverbs_query_device {
	uint64_t response;
};

struct ib_uverbs_query_device_resp {
	uint64_t fw_ver;
	uint64_t node_guid;       /* big-endian */
	uint64_t sys_image_guid;  /* big-endian */
	uint64_t max_mr_size;
	uint64_t page_size_cap;
	uint32_t vendor_id;
	uint32_t vendor_part_id;
	uint32_t hw_ver;
	uint32_t max_qp;
	uint32_t max_qp_wr;
	uint32_t device_cap_flags;
	uint32_t max_sge;
	uint32_t max_sge_rd;
	uint32_t max_cq;
	uint32_t max_cqe;
	uint32_t max_mr;
	uint32_t max_pd;
	uint32_t max_qp_rd_atom;
	uint32_t max_ee_rd_atom;
	uint32_t max_res_rd_atom;
	uint32_t max_qp_init_rd_atom;
	uint32_t max_ee_init_rd_atom;
	uint32_t atomic_cap;
	uint32_t max_ee;
	uint32_t max_rdd;
	uint32_t max_mw;
	uint32_t max_raw_ipv6_qp;
	uint32_t max_raw_ethy_qp;
	uint32_t max_mcast_grp;
	uint32_t max_mcast_qp_attach;
	uint32_t max_total_mcast_qp_attach;
	uint32_t max_ah;
	uint32_t max_fmr;
	uint32_t max_map_per_fmr;
	uint32_t max_srq;
	uint32_t max_srq_wr;
	uint32_t max_srq_sge;
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay;
	uint8_t phys_port_cnt;
	uint8_t reserved[4];
};

struct ib_uverbs_ex_query_device {
	uint32_t comp_mask;
	uint32_t reserved;
};

struct ib_uverbs_odp_caps {
	uint64_t general_caps;
	uint32_t per_transport_caps[3];
	uint32_t reserved;
};

struct ib_uverbs_rss_caps {
	uint32_t supported_qpts;
	uint32_t max_rwq_indirection_tables;
	uint32_t max_rwq_indirection_table_size;
	uint32_t reserved;
};

struct ib_uverbs_tm_caps {
	uint32_t max_rndv_hdr_size;
	uint32_t max_num_tags;
	uint32_t flags;
	uint32_t max_ops;
	uint32_t max_sge;
	uint32_t reserved;
};

struct ib_uverbs_cq_moderation_caps {
	uint16_t max_cq_moderation_count;
	uint16_t max_cq_moderation_period;
	uint32_t reserved;
};

struct ib_uverbs_ex_query_device_resp {
	struct ib_uverbs_query_device_resp base;
	uint32_t comp_mask;
	uint32_t response_length;
	struct ib_uverbs_odp_caps odp_caps;
	uint64_t timestamp_mask;
	uint64_t hca_core_clock; /* kHz */
	uint64_t device_cap_flags_ex;
	struct ib_uverbs_rss_caps rss_caps;
	uint32_t max_wq_type_rq;
	uint32_t raw_packet_caps;
	struct ib_uverbs_tm_caps tm_caps;
	struct ib_uverbs_cq_moderation_caps cq_moderation_caps;
	uint64_t max_dm_size;
	uint32_t xrc_odp_caps;
	uint32_t reserved;
};

enum ib_uverbs_device_cap_flags {
	IB_UVERBS_DEVICE_BAD_PKEY_CNTR = 1 << 1,
	IB_UVERBS_DEVICE_BAD_QKEY_CNTR = 1 << 2,
	IB_UVERBS_DEVICE_PORT_ACTIVE_EVENT = 1 << 10,
	IB_UVERBS_DEVICE_SYS_IMAGE_GUID = 1 << 11,
	IB_UVERBS_DEVICE_RC_RNR_NAK_GEN = 1 << 12,
	IB_UVERBS_DEVICE_MANAGED_FLOW_STEERING = 1 << 29,
};

struct ib_uverbs_query_port {
	uint64_t response;
	uint8_t port_num;
	uint8_t reserved[7];
};

struct ib_uverbs_query_port_resp {
	uint32_t port_cap_flags;
	uint32_t max_msg_sz;
	uint32_t bad_pkey_cntr;
	uint32_t qkey_viol_cntr;
	uint32_t gid_tbl_len;
	uint16_t pkey_tbl_len;
	uint16_t lid;
	uint16_t sm_lid;
	uint8_t state;
	uint8_t max_mtu;
	uint8_t active_mtu;
	uint8_t lmc;
	uint8_t max_vl_num;
	uint8_t sm_sl;
	uint8_t subnet_timeout;
	uint8_t init_type_reply;
	uint8_t active_width;
	uint8_t active_speed;
	uint8_t phys_state;
	uint8_t link_layer;
	uint8_t flags;
	uint8_t reserved;
};

struct ib_uverbs_query_port_resp_ex {
	struct ib_uverbs_query_port_resp legacy_resp;
	uint16_t port_cap_flags2;
	uint8_t reserved[2];
	uint32_t active_speed_ex;
};

enum ib_uverbs_gid_type { IB_UVERBS_GID_TYPE_IB, IB_UVERBS_GID_TYPE_ROCE_V1, IB_UVERBS_GID_TYPE_ROCE_V2 };

struct ib_uverbs_gid_entry {
	uint64_t gid[2];
	uint32_t gid_index;
	uint32_t port_num;
	uint32_t gid_type;
	uint32_t netdev_ifindex;
};

struct ib_uverbs_alloc_pd {
	uint64_t response;
};
struct ib_uverbs_alloc_pd_resp {
	uint32_t pd_handle;
};

enum ib_uverbs_access_flags {
	IB_UVERBS_ACCESS_LOCAL_WRITE = 1 << 0,
	IB_UVERBS_ACCESS_REMOTE_WRITE = 1 << 1,
	IB_UVERBS_ACCESS_REMOTE_READ = 1 << 2,
	IB_UVERBS_ACCESS_REMOTE_ATOMIC = 1 << 3,
	IB_UVERBS_ACCESS_MW_BIND = 1 << 4,
	IB_UVERBS_ACCESS_ZERO_BASED = 1 << 5,
	IB_UVERBS_ACCESS_ON_DEMAND = 1 << 6,
	IB_UVERBS_ACCESS_HUGETLB = 1 << 7,
	IB_UVERBS_ACCESS_RELAXED_ORDERING = 1 << 20,
	IB_UVERBS_ACCESS_OPTIONAL_RANGE = 0x3ff00000,
};

struct ib_uverbs_reg_mr {
	uint64_t response;
	uint64_t start;
	uint64_t length;
	uint64_t hca_va;
	uint32_t pd_handle;
	uint32_t access_flags;
};
struct ib_uverbs_reg_mr_resp {
	uint32_t mr_handle;
	uint32_t lkey;
	uint32_t rkey;
};

struct ib_uverbs_global_route {
	uint8_t dgid[16];
	uint32_t flow_label;
	uint8_t sgid_index;
	uint8_t hop_limit;
	uint8_t traffic_class;
	uint8_t reserved;
};
struct ib_uverbs_ah_attr {
	struct ib_uverbs_global_route grh;
	uint16_t dlid;
	uint8_t sl;
	uint8_t src_path_bits;
	uint8_t static_rate;
	uint8_t is_global;
	uint8_t port_num;
	uint8_t reserved;
};
struct ib_uverbs_create_ah {
	uint64_t response;
	uint64_t user_handle;
	uint32_t pd_handle;
	uint32_t reserved;
	struct ib_uverbs_ah_attr attr;
};
struct ib_uverbs_create_ah_resp {
	uint32_t ah_handle;
};

struct ib_uverbs_create_comp_channel {
	uint64_t response;
};
struct ib_uverbs_create_comp_channel_resp {
	uint32_t fd;
};

enum { IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION = 1 << 0, IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN = 1 << 1 };

struct ib_uverbs_destroy_cq_resp {
	uint32_t comp_events_reported;
	uint32_t async_events_reported;
};

enum ib_uverbs_qp_type {
	IB_UVERBS_QPT_RC = 2,
	IB_UVERBS_QPT_UC,
	IB_UVERBS_QPT_UD,
	IB_UVERBS_QPT_RAW_PACKET = 8,
	IB_UVERBS_QPT_XRC_INI,
	IB_UVERBS_QPT_XRC_TGT,
	IB_UVERBS_QPT_DRIVER = 0xff,
};
enum ib_uverbs_qp_create_flags {
	IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK = 1 << 1,
	IB_UVERBS_QP_CREATE_SCATTER_FCS = 1 << 8,
	IB_UVERBS_QP_CREATE_CVLAN_STRIPPING = 1 << 9,
	IB_UVERBS_QP_CREATE_PCI_WRITE_END_PADDING = 1 << 11,
	IB_UVERBS_QP_CREATE_SQ_SIG_ALL = 1 << 12,
};
struct ib_uverbs_qp_cap {
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline_data;
};
struct ib_uverbs_destroy_qp_resp {
	uint32_t events_reported;
};

struct ib_uverbs_qp_dest {
	uint8_t dgid[16];
	uint32_t flow_label;
	uint16_t dlid;
	uint16_t reserved;
	uint8_t sgid_index;
	uint8_t hop_limit;
	uint8_t traffic_class;
	uint8_t sl;
	uint8_t src_path_bits;
	uint8_t static_rate;
	uint8_t is_global;
	uint8_t port_num;
};
struct ib_uverbs_query_qp {
	uint64_t response;
	uint32_t qp_handle;
	uint32_t attr_mask;
};
struct ib_uverbs_query_qp_resp {
	struct ib_uverbs_qp_dest dest;
	struct ib_uverbs_qp_dest alt_dest;
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline_data;
	uint32_t qkey;
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint32_t dest_qp_num;
	uint32_t qp_access_flags;
	uint16_t pkey_index;
	uint16_t alt_pkey_index;
	uint8_t qp_state;
	uint8_t cur_qp_state;
	uint8_t path_mtu;
	uint8_t path_mig_state;
	uint8_t sq_draining;
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	uint8_t min_rnr_timer;
	uint8_t port_num;
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint8_t alt_port_num;
	uint8_t alt_timeout;
	uint8_t sq_sig_all;
	uint8_t reserved[5];
};
struct ib_uverbs_modify_qp {
	struct ib_uverbs_qp_dest dest;
	struct ib_uverbs_qp_dest alt_dest;
	uint32_t qp_handle;
	uint32_t attr_mask;
	uint32_t qkey;
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint32_t dest_qp_num;
	uint32_t qp_access_flags;
	uint16_t pkey_index;
	uint16_t alt_pkey_index;
	uint8_t qp_state;
	uint8_t cur_qp_state;
	uint8_t path_mtu;
	uint8_t path_mig_state;
	uint8_t en_sqd_async_notify;
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	uint8_t min_rnr_timer;
	uint8_t port_num;
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint8_t alt_port_num;
	uint8_t alt_timeout;
	uint8_t reserved[2];
};

/* The head of each spec behind flow_attr: values and masks follow it. */
struct ib_uverbs_flow_spec_hdr {
	uint32_t type;
	uint16_t size;
	uint16_t reserved;
};
struct ib_uverbs_flow_attr {
	uint32_t type;
	uint16_t size; /* of the specs only */
	uint16_t priority;
	uint8_t num_of_specs;
	uint8_t reserved[2];
	uint8_t port;
	uint32_t flags;
};
struct ib_uverbs_create_flow {
	uint32_t comp_mask;
	uint32_t qp_handle;
	struct ib_uverbs_flow_attr flow_attr;
};
struct ib_uverbs_create_flow_resp {
	uint32_t comp_mask;
	uint32_t flow_handle;
};
struct ib_uverbs_destroy_flow {
	uint32_t comp_mask;
	uint32_t flow_handle;
};

#endif
