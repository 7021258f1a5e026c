/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_abi.h: the part of libibverbs' binary interface that this package uses, and no more. The
 * names and layouts come from <infiniband/verbs.h>, so a build needs no header of the
 * distribution. Fields that are enums there are uint32_t here. A test compiles both and compares
 * every size and offset.
 *
 * Nothing here is linked against: the library is opened at run time. */
#ifndef FLOWTALLY_VERBS_ABI_H
#define FLOWTALLY_VERBS_ABI_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

_Static_assert(sizeof(void *) == 8, "flow blobs hold addresses of 8 bytes (spec_action.go): build with CGO_ENABLED=0");

struct ibv_device {
	struct {
		void *_dummy1, *_dummy2;
	} _ops;
	int32_t node_type;
	int32_t transport_type;
	char name[64];
	char dev_name[64];
	char dev_path[256];
	char ibdev_path[256];
};

struct ibv_device_attr {
	char fw_ver[64];
	uint64_t node_guid;      /* big endian */
	uint64_t sys_image_guid; /* big endian */
	uint64_t max_mr_size;
	uint64_t page_size_cap;
	uint32_t vendor_id;
	uint32_t vendor_part_id;
	uint32_t hw_ver;
	int max_qp;
	int max_qp_wr;
	unsigned int device_cap_flags;
	int max_sge;
	int max_sge_rd;
	int max_cq;
	int max_cqe;
	int max_mr;
	int max_pd;
	int max_qp_rd_atom;
	int max_ee_rd_atom;
	int max_res_rd_atom;
	int max_qp_init_rd_atom;
	int max_ee_init_rd_atom;
	uint32_t atomic_cap;
	int max_ee;
	int max_rdd;
	int max_mw;
	int max_raw_ipv6_qp;
	int max_raw_ethy_qp;
	int max_mcast_grp;
	int max_mcast_qp_attach;
	int max_total_mcast_qp_attach;
	int max_ah;
	int max_fmr;
	int max_map_per_fmr;
	int max_srq;
	int max_srq_wr;
	int max_srq_sge;
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay;
	uint8_t phys_port_cnt;
};

struct ibv_port_attr {
	uint32_t state;
	uint32_t max_mtu;
	uint32_t active_mtu;
	int gid_tbl_len;
	uint32_t port_cap_flags;
	uint32_t max_msg_sz;
	uint32_t bad_pkey_cntr;
	uint32_t qkey_viol_cntr;
	uint16_t pkey_tbl_len;
	uint16_t lid;
	uint16_t sm_lid;
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
	uint16_t port_cap_flags2;
};

struct ibv_context;
struct ibv_srq;
struct ibv_mw;
struct ibv_comp_channel;

struct ibv_async_event {
	union {
		struct ibv_cq *cq;
		struct ibv_qp *qp;
		int port_num;
	} element;
	uint32_t event_type;
};

struct ibv_wc {
	uint64_t wr_id;
	uint32_t status;
	uint32_t opcode;
	uint32_t vendor_err;
	uint32_t byte_len;
	uint32_t imm_data; /* big endian */
	uint32_t qp_num;
	uint32_t src_qp;
	unsigned int wc_flags;
	uint16_t pkey_index;
	uint16_t slid;
	uint8_t sl;
	uint8_t dlid_path_bits;
};

struct ibv_pd {
	struct ibv_context *context;
	uint32_t handle;
};

struct ibv_mr {
	struct ibv_context *context;
	struct ibv_pd *pd;
	void *addr;
	size_t length;
	uint32_t handle;
	uint32_t lkey;
	uint32_t rkey;
};

struct ibv_cq {
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	void *cq_context;
	uint32_t handle;
	int cqe;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t comp_events_completed;
	uint32_t async_events_completed;
};

union ibv_gid {
	uint8_t raw[16];
	struct {
		uint64_t subnet_prefix; /* big endian */
		uint64_t interface_id;  /* big endian */
	} global;
};

struct ibv_global_route {
	union ibv_gid dgid;
	uint32_t flow_label;
	uint8_t sgid_index;
	uint8_t hop_limit;
	uint8_t traffic_class;
};

struct ibv_ah_attr {
	struct ibv_global_route grh;
	uint16_t dlid;
	uint8_t sl;
	uint8_t src_path_bits;
	uint8_t static_rate;
	uint8_t is_global;
	uint8_t port_num;
};

struct ibv_ah {
	struct ibv_context *context;
	struct ibv_pd *pd;
	uint32_t handle;
};

struct ibv_qp_cap {
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline_data;
};

struct ibv_qp_init_attr {
	void *qp_context;
	struct ibv_cq *send_cq;
	struct ibv_cq *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp_cap cap;
	uint32_t qp_type;
	int sq_sig_all;
};

struct ibv_qp_attr {
	uint32_t qp_state;
	uint32_t cur_qp_state;
	uint32_t path_mtu;
	uint32_t path_mig_state;
	uint32_t qkey;
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint32_t dest_qp_num;
	unsigned int qp_access_flags;
	struct ibv_qp_cap cap;
	struct ibv_ah_attr ah_attr;
	struct ibv_ah_attr alt_ah_attr;
	uint16_t pkey_index;
	uint16_t alt_pkey_index;
	uint8_t en_sqd_async_notify;
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
	uint32_t rate_limit;
};

struct ibv_qp {
	struct ibv_context *context;
	void *qp_context;
	struct ibv_pd *pd;
	struct ibv_cq *send_cq;
	struct ibv_cq *recv_cq;
	struct ibv_srq *srq;
	uint32_t handle;
	uint32_t qp_num;
	uint32_t state;
	uint32_t qp_type;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
};

struct ibv_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

struct ibv_mw_bind_info {
	struct ibv_mr *mr;
	uint64_t addr;
	uint64_t length;
	unsigned int mw_access_flags;
};

struct ibv_send_wr {
	uint64_t wr_id;
	struct ibv_send_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
	uint32_t opcode;
	unsigned int send_flags;
	union {
		uint32_t imm_data; /* big endian */
		uint32_t invalidate_rkey;
	};
	union {
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
		} rdma;
		struct {
			uint64_t remote_addr;
			uint64_t compare_add;
			uint64_t swap;
			uint32_t rkey;
		} atomic;
		struct {
			struct ibv_ah *ah;
			uint32_t remote_qpn;
			uint32_t remote_qkey;
		} ud;
	} wr;
	union {
		struct {
			uint32_t remote_srqn;
		} xrc;
	} qp_type;
	union {
		struct {
			struct ibv_mw *mw;
			uint32_t rkey;
			struct ibv_mw_bind_info bind_info;
		} bind_mw;
		struct {
			void *hdr;
			uint16_t hdr_sz;
			uint16_t mss;
		} tso;
	};
};

struct ibv_recv_wr {
	uint64_t wr_id;
	struct ibv_recv_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
};

struct ibv_flow_attr {
	uint32_t comp_mask;
	uint32_t type;
	uint16_t size;
	uint16_t priority;
	uint8_t num_of_specs;
	uint8_t port;
	uint32_t flags;
};

struct ibv_flow {
	uint32_t comp_mask;
	struct ibv_context *context;
	uint32_t handle;
};

struct ibv_counters_init_attr {
	uint32_t comp_mask;
};

struct ibv_counters {
	struct ibv_context *context;
};

struct ibv_counter_attach_attr {
	uint32_t counter_desc;
	uint32_t index;
	uint32_t comp_mask;
};

/* Completion counters are new in IBVERBS_1.18 (rdma-core 65), so a distribution's
 * headers may not know them: the test has their layouts from that release's. */
struct ibv_comp_cntr_caps {
	uint64_t max_value;
	uint32_t max_counters;
	uint32_t supported_qp_attach_ops;
};

struct ibv_comp_cntr {
	struct ibv_context *context;
	uint32_t handle;
};

struct ibv_comp_cntr_init_attr {
	uint32_t comp_mask;
	uint32_t type;
	uint32_t flags;
};

struct ibv_qp_attach_comp_cntr_attr {
	uint32_t comp_mask;
	uint32_t op_mask;
};

/* The old half of a context. An operation that this package does not call is a bare pointer. */
struct ibv_context_ops {
	int (*_compat_query_device)(struct ibv_context *, struct ibv_device_attr *);
	int (*_compat_query_port)(struct ibv_context *, uint8_t, void *);
	void *_compat_alloc_pd, *_compat_dealloc_pd, *_compat_reg_mr, *_compat_rereg_mr, *_compat_dereg_mr;
	void *alloc_mw, *bind_mw, *dealloc_mw;
	void *_compat_create_cq;
	int (*poll_cq)(struct ibv_cq *, int num_entries, struct ibv_wc *);
	int (*req_notify_cq)(struct ibv_cq *, int solicited_only);
	void *_compat_cq_event, *_compat_resize_cq, *_compat_destroy_cq;
	void *_compat_create_srq, *_compat_modify_srq, *_compat_query_srq, *_compat_destroy_srq;
	void *post_srq_recv;
	void *_compat_create_qp, *_compat_query_qp, *_compat_modify_qp, *_compat_destroy_qp;
	int (*post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **bad_wr);
	int (*post_recv)(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **bad_wr);
	void *_compat_create_ah, *_compat_destroy_ah, *_compat_attach_mcast, *_compat_detach_mcast, *_compat_async_event;
};

struct ibv_context {
	struct ibv_device *device;
	struct ibv_context_ops ops;
	int cmd_fd;
	int async_fd;
	int num_comp_vectors;
	pthread_mutex_t mutex;
	void *abi_compat; /* UINTPTR_MAX: a struct verbs_context lies around this one */
};

/* The new half grows upwards: an older library's struct is shorter at this end, and sz is its
 * length. Read it only through verbs_get_ctx_op below. */
struct verbs_context {
	int (*query_port)(struct ibv_context *, uint8_t port_num, struct ibv_port_attr *, size_t);
	void *advise_mr, *alloc_null_mr;
	int (*read_counters)(struct ibv_counters *, uint64_t *values, uint32_t ncounters, uint32_t flags);
	int (*attach_counters_point_flow)(struct ibv_counters *, struct ibv_counter_attach_attr *, struct ibv_flow *);
	struct ibv_counters *(*create_counters)(struct ibv_context *, struct ibv_counters_init_attr *);
	int (*destroy_counters)(struct ibv_counters *);
	void *reg_dm_mr, *alloc_dm, *free_dm;
	void *modify_flow_action_esp, *destroy_flow_action, *create_flow_action_esp;
	void *modify_qp_rate_limit, *alloc_parent_domain, *dealloc_td, *alloc_td;
	void *modify_cq, *post_srq_ops, *destroy_rwq_ind_table, *create_rwq_ind_table;
	void *destroy_wq, *modify_wq, *create_wq, *query_rt_values, *create_cq_ex;
	void *priv;
	void *query_device_ex;
	int (*ibv_destroy_flow)(struct ibv_flow *);
	void *ABI_placeholder2;
	struct ibv_flow *(*ibv_create_flow)(struct ibv_qp *, struct ibv_flow_attr *);
	void *ABI_placeholder1;
	void *open_qp, *create_qp_ex, *get_srq_num, *create_srq_ex, *open_xrcd, *close_xrcd;
	uint64_t _ABI_placeholder3;
	size_t sz;
	struct ibv_context context;
};

/* The struct before the context, or NULL for a library from before 2014. */
static inline struct verbs_context *verbs_get_ctx(struct ibv_context *ctx) {
	if (ctx->abi_compat != (void *)UINTPTR_MAX) return NULL;
	return (struct verbs_context *)((char *)ctx - offsetof(struct verbs_context, context));
}

/* verbs_get_ctx_op(ctx, op): the verbs_context when it reaches up to op and the
 * provider has set it; NULL otherwise. */
#define verbs_get_ctx_op(ctx, op)                                                              \
	({                                                                                     \
		struct verbs_context *vctx_ = verbs_get_ctx(ctx);                              \
		(!vctx_ || vctx_->sz < sizeof *vctx_ - offsetof(struct verbs_context, op) ||   \
		 !vctx_->op)                                                                   \
			? NULL                                                                 \
			: vctx_;                                                               \
	})

#endif
