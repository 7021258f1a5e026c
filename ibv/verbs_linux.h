/* SPDX-License-Identifier: Apache-2.0
 *
 * The C side of the binding: libibverbs as a table of functions that were looked up, and one
 * wrapper per verb. Every wrapper returns 0 or a positive errno, even where its verb returns -1 or
 * sets errno. Objects cross as integers: Go never has a pointer to one. */
#ifndef FLOWTALLY_VERBS_LINUX_H
#define FLOWTALLY_VERBS_LINUX_H

#include "internal/abi/verbs_abi.h"

_Static_assert(sizeof(void *) == 8, "flow blobs hold addresses of 8 bytes (spec_action.go): build with CGO_ENABLED=0");

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

/* NULL: the library does not have the symbol. */
struct ft_verbs {
	void *lib;
	struct ibv_device **(*get_device_list)(int *);
	void (*free_device_list)(struct ibv_device **);
	uint64_t (*get_device_guid)(struct ibv_device *);
	struct ibv_context *(*open_device)(struct ibv_device *);
	int (*close_device)(struct ibv_context *);
	int (*query_device)(struct ibv_context *, struct ibv_device_attr *);
	int (*query_port)(struct ibv_context *, uint8_t, void *);
	int (*query_comp_cntr_caps)(struct ibv_context *, struct ibv_comp_cntr_caps *, size_t);
	int (*query_gid)(struct ibv_context *, uint8_t, int, union ibv_gid *);
	int (*get_async_event)(struct ibv_context *, struct ibv_async_event *);
	void (*ack_async_event)(struct ibv_async_event *);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *);
	int (*dealloc_pd)(struct ibv_pd *);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *, void *, size_t, int);
	int (*dereg_mr)(struct ibv_mr *);
	struct ibv_ah *(*create_ah)(struct ibv_pd *, struct ibv_ah_attr *);
	int (*destroy_ah)(struct ibv_ah *);
	struct ibv_cq *(*create_cq)(struct ibv_context *, int, void *, struct ibv_comp_channel *, int);
	int (*destroy_cq)(struct ibv_cq *);
	struct ibv_qp *(*create_qp)(struct ibv_pd *, struct ibv_qp_init_attr *);
	int (*modify_qp)(struct ibv_qp *, struct ibv_qp_attr *, int);
	int (*query_qp)(struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *);
	int (*destroy_qp)(struct ibv_qp *);
	struct ibv_comp_cntr *(*create_comp_cntr)(struct ibv_context *, struct ibv_comp_cntr_init_attr *);
	int (*destroy_comp_cntr)(struct ibv_comp_cntr *);
	int (*set_comp_cntr)(struct ibv_comp_cntr *, uint64_t);
	int (*set_err_comp_cntr)(struct ibv_comp_cntr *, uint64_t);
	int (*inc_comp_cntr)(struct ibv_comp_cntr *, uint64_t);
	int (*inc_err_comp_cntr)(struct ibv_comp_cntr *, uint64_t);
	int (*read_comp_cntr)(struct ibv_comp_cntr *, uint64_t *);
	int (*read_err_comp_cntr)(struct ibv_comp_cntr *, uint64_t *);
	int (*qp_attach_comp_cntr)(struct ibv_qp *, struct ibv_comp_cntr *, struct ibv_qp_attach_comp_cntr_attr *);
};

/* ft_load opens path and fills v. On failure it returns NULL or, in why, a text of at most whylen
 * bytes, and closes the library. */
struct ft_verbs *ft_load(const char *path, char *why, size_t whylen);
/* stay leaves the library mapped, because its code still runs. */
void ft_unload(struct ft_verbs *v, int stay);
const char *ft_path(const struct ft_verbs *v);
int ft_has(const struct ft_verbs *v, const char *symbol);

/* The fields of a struct ibv_device that Go keeps. */
struct ft_device {
	char name[64];
	char ibdev_path[256];
	uint64_t guid; /* host order */
	int32_t node_type;
	int32_t transport_type;
};

/* ft_devices fills at most n entries and sets *found to how many there are. */
int ft_devices(const struct ft_verbs *v, struct ft_device *list, int n, int *found);
int ft_open_device(const struct ft_verbs *v, const char *name, uintptr_t *ctx, int *async_fd);
const char *ft_ibdev_path(uintptr_t ctx);
int ft_close_device(const struct ft_verbs *v, uintptr_t ctx);
int ft_query_device(const struct ft_verbs *v, uintptr_t ctx, struct ibv_device_attr *attr);
int ft_query_port(const struct ft_verbs *v, uintptr_t ctx, uint8_t port, struct ibv_port_attr *attr);
int ft_query_comp_cntr_caps(const struct ft_verbs *v, uintptr_t ctx, struct ibv_comp_cntr_caps *caps);
int ft_query_gid(const struct ft_verbs *v, uintptr_t ctx, uint8_t port, int index, uint8_t gid[16]);
/* element is a port number or an object's address, whose destruction waits for
 * ft_ack_event. */
int ft_get_event(const struct ft_verbs *v, uintptr_t ctx, uint32_t *type, uint64_t *element);
void ft_ack_event(const struct ft_verbs *v, uint32_t type, uint64_t element);

/* The fields of a struct ibv_mr that Go keeps. */
struct ft_mr {
	uintptr_t mr;
	uint64_t addr;
	uint32_t lkey, rkey;
};

int ft_alloc_pd(const struct ft_verbs *v, uintptr_t ctx, uintptr_t *pd);
int ft_dealloc_pd(const struct ft_verbs *v, uintptr_t pd);
/* The library keeps mem until ft_dereg_mr. */
int ft_reg_mr(const struct ft_verbs *v, uintptr_t pd, uint8_t *mem, size_t len, uint32_t access, struct ft_mr *mr);
int ft_dereg_mr(const struct ft_verbs *v, uintptr_t mr);
int ft_create_ah(const struct ft_verbs *v, uintptr_t pd, struct ibv_ah_attr *attr, uintptr_t *ah);
int ft_destroy_ah(const struct ft_verbs *v, uintptr_t ah);
int ft_create_cq(const struct ft_verbs *v, uintptr_t ctx, int cqe, int vector, uintptr_t *cq, int *got);
int ft_poll_cq(uintptr_t cq, int n, struct ibv_wc *wc, int *got);
int ft_destroy_cq(const struct ft_verbs *v, uintptr_t cq);
int ft_create_qp(const struct ft_verbs *v, uintptr_t pd, uintptr_t send_cq, uintptr_t recv_cq, uint32_t type,
		 const struct ibv_qp_cap *cap, int sq_sig_all, uintptr_t *qp, uint32_t *qp_num);
int ft_modify_qp(const struct ft_verbs *v, uintptr_t qp, struct ibv_qp_attr *attr, uint32_t mask);
int ft_query_qp(const struct ft_verbs *v, uintptr_t qp, uint32_t mask, struct ibv_qp_attr *attr);
int ft_destroy_qp(const struct ft_verbs *v, uintptr_t qp);

/* Work requests in Go's layout: at most one segment, ignored if its length is 0. Both calls take
 * at most FT_BATCH requests and set *posted to the number that the library accepted, which is n
 * when they return 0. */
#define FT_BATCH 16
struct ft_send_wr {
	uint64_t wr_id;
	struct ibv_sge sge;
	uint32_t opcode, flags;
	uint32_t imm; /* host order */
	uint32_t rkey;
	uint64_t remote_addr;
	uint32_t remote_qpn, remote_qkey;
};
struct ft_recv_wr {
	uint64_t wr_id;
	struct ibv_sge sge;
};
/* ah 0: the requests belong to a connected queue pair, or are raw frames. */
int ft_post_send(uintptr_t qp, uintptr_t ah, const struct ft_send_wr *wrs, int n, int *posted);
int ft_post_recv(uintptr_t qp, const struct ft_recv_wr *wrs, int n, int *posted);

/* ft_has_comp_cntrs reports whether the library has the verbs of completion counters. */
int ft_has_comp_cntrs(const struct ft_verbs *v);
/* One of the two words of a completion counter. */
enum ft_word { FT_COMP, FT_ERR };
int ft_create_comp_cntr(const struct ft_verbs *v, uintptr_t ctx, uint32_t comp_mask, uint32_t type, uint32_t flags, uintptr_t *cntr);
int ft_destroy_comp_cntr(const struct ft_verbs *v, uintptr_t cntr);
int ft_set_comp_cntr(const struct ft_verbs *v, uintptr_t cntr, enum ft_word word, uint64_t value);
int ft_inc_comp_cntr(const struct ft_verbs *v, uintptr_t cntr, enum ft_word word, uint64_t amount);
int ft_read_comp_cntr(const struct ft_verbs *v, uintptr_t cntr, enum ft_word word, uint64_t *value);
int ft_attach_comp_cntr(const struct ft_verbs *v, uintptr_t qp, uintptr_t cntr, uint32_t comp_mask, uint32_t op_mask);

/* The inline verbs: through the verbs_context of their object. */
int ft_create_flow(uintptr_t qp, const void *blob, size_t len, uintptr_t *flow);
int ft_destroy_flow(uintptr_t flow);
int ft_create_counters(uintptr_t ctx, uint32_t comp_mask, uintptr_t *counters);
int ft_attach_counters(uintptr_t counters, uint32_t desc, uint32_t index, uint32_t comp_mask, uintptr_t flow);
int ft_read_counters(uintptr_t counters, uint64_t *values, uint32_t n, uint32_t flags);
int ft_destroy_counters(uintptr_t counters);

#endif
