/* SPDX-License-Identifier: Apache-2.0 */
//go:build cgo

#define _GNU_SOURCE
#include "verbs_linux.h"
#include "dl_linux.h"

#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ft_verbs *ft_load(const char *path, char *why, size_t whylen) {
	struct ft_verbs *v = calloc(1, sizeof *v);
	if (!v) {
		snprintf(why, whylen, "out of memory");
		return NULL;
	}
	const struct ft_symbol symbols[] = {
		{"ibv_get_device_list", "IBVERBS_1.1", &v->get_device_list, 1},
		{"ibv_free_device_list", "IBVERBS_1.1", &v->free_device_list, 1},
		{"ibv_open_device", "IBVERBS_1.1", &v->open_device, 1},
		{"ibv_close_device", "IBVERBS_1.1", &v->close_device, 1},
		{"ibv_get_device_guid", "IBVERBS_1.1", &v->get_device_guid, 0},
		{"ibv_query_device", "IBVERBS_1.1", &v->query_device, 0},
		{"ibv_query_port", "IBVERBS_1.1", &v->query_port, 0},
		{"ibv_get_async_event", "IBVERBS_1.1", &v->get_async_event, 0},
		{"ibv_ack_async_event", "IBVERBS_1.1", &v->ack_async_event, 0},
		{"ibv_alloc_pd", "IBVERBS_1.1", &v->alloc_pd, 0},
		{"ibv_dealloc_pd", "IBVERBS_1.1", &v->dealloc_pd, 0},
		{"ibv_create_cq", "IBVERBS_1.1", &v->create_cq, 0},
		{"ibv_destroy_cq", "IBVERBS_1.1", &v->destroy_cq, 0},
		{"ibv_create_qp", "IBVERBS_1.1", &v->create_qp, 0},
		{"ibv_modify_qp", "IBVERBS_1.1", &v->modify_qp, 0},
		{"ibv_query_qp", "IBVERBS_1.1", &v->query_qp, 0},
		{"ibv_destroy_qp", "IBVERBS_1.1", &v->destroy_qp, 0},
		{"ibv_query_gid", "IBVERBS_1.1", &v->query_gid, 0},
		{"ibv_reg_mr", "IBVERBS_1.1", &v->reg_mr, 0},
		{"ibv_dereg_mr", "IBVERBS_1.1", &v->dereg_mr, 0},
		{"ibv_create_ah", "IBVERBS_1.1", &v->create_ah, 0},
		{"ibv_destroy_ah", "IBVERBS_1.1", &v->destroy_ah, 0},
		{"_ibv_query_comp_cntr_caps", "IBVERBS_1.18", &v->query_comp_cntr_caps, 0},
		{"ibv_create_comp_cntr", "IBVERBS_1.18", &v->create_comp_cntr, 0},
		{"ibv_destroy_comp_cntr", "IBVERBS_1.18", &v->destroy_comp_cntr, 0},
		{"ibv_set_comp_cntr", "IBVERBS_1.18", &v->set_comp_cntr, 0},
		{"ibv_set_err_comp_cntr", "IBVERBS_1.18", &v->set_err_comp_cntr, 0},
		{"ibv_inc_comp_cntr", "IBVERBS_1.18", &v->inc_comp_cntr, 0},
		{"ibv_inc_err_comp_cntr", "IBVERBS_1.18", &v->inc_err_comp_cntr, 0},
		{"ibv_read_comp_cntr", "IBVERBS_1.18", &v->read_comp_cntr, 0},
		{"ibv_read_err_comp_cntr", "IBVERBS_1.18", &v->read_err_comp_cntr, 0},
		{"ibv_qp_attach_comp_cntr", "IBVERBS_1.18", &v->qp_attach_comp_cntr, 0},
	};
	v->lib = ft_dlopen(path, 0, symbols, sizeof symbols / sizeof *symbols, why, whylen);
	if (v->lib) return v;
	free(v);
	return NULL;
}

void ft_unload(struct ft_verbs *v, int stay) {
	if (!stay) dlclose(v->lib);
	free(v);
}

const char *ft_path(const struct ft_verbs *v) {
	Dl_info info;
	void *f;
	memcpy(&f, &v->get_device_list, sizeof f);
	return dladdr(f, &info) && info.dli_fname ? info.dli_fname : "";
}

int ft_has(const struct ft_verbs *v, const char *symbol) { return dlsym(v->lib, symbol) != NULL; }

int ft_devices(const struct ft_verbs *v, struct ft_device *list, int n, int *found) {
	errno = 0;
	*found = 0;
	struct ibv_device **all = v->get_device_list(found);
	if (!all) return ft_no_object();
	for (int i = 0; i < n && i < *found; i++) {
		struct ft_device *d = &list[i];
		memset(d, 0, sizeof *d);
		snprintf(d->name, sizeof d->name, "%s", all[i]->name);
		snprintf(d->ibdev_path, sizeof d->ibdev_path, "%s", all[i]->ibdev_path);
		d->guid = v->get_device_guid ? be64toh(v->get_device_guid(all[i])) : 0;
		d->node_type = all[i]->node_type;
		d->transport_type = all[i]->transport_type;
	}
	v->free_device_list(all);
	return 0;
}

int ft_open_device(const struct ft_verbs *v, const char *name, uintptr_t *out, int *async_fd) {
	errno = 0;
	int n = 0, err = ENODEV;
	struct ibv_device **all = v->get_device_list(&n);
	if (!all) return ft_no_object();
	for (int i = 0; i < n; i++) {
		if (strncmp(all[i]->name, name, sizeof all[i]->name)) continue;
		errno = 0;
		struct ibv_context *ctx = v->open_device(all[i]);
		err = ctx ? 0 : ft_no_object();
		if (err == ENODEV) err = EIO; /* ENODEV would mean that the list has no such name */
		if (ctx) {
			*out = (uintptr_t)ctx;
			*async_fd = ctx->async_fd;
		}
		break;
	}
	v->free_device_list(all); /* a device that is open stays valid */
	return err;
}

const char *ft_ibdev_path(uintptr_t ctx) {
	return ((struct ibv_context *)ctx)->device->ibdev_path;
}

int ft_close_device(const struct ft_verbs *v, uintptr_t ctx) {
	return CALL(v->close_device((struct ibv_context *)ctx));
}

int ft_query_device(const struct ft_verbs *v, uintptr_t ctx, struct ibv_device_attr *attr) {
	if (!v->query_device) return ENOSYS;
	return CALL(v->query_device((struct ibv_context *)ctx, attr));
}

int ft_query_port(const struct ft_verbs *v, uintptr_t c, uint8_t port, struct ibv_port_attr *attr) {
	struct ibv_context *ctx = (struct ibv_context *)c;
	struct verbs_context *vctx = verbs_get_ctx_op(ctx, query_port);
	memset(attr, 0, sizeof *attr);
	if (vctx) return CALL(vctx->query_port(ctx, port, attr, sizeof *attr));
	/* The symbol fills the struct as far as it was in its day. */
	if (!v->query_port) return ENOSYS;
	return CALL(v->query_port(ctx, port, attr));
}

int ft_query_comp_cntr_caps(const struct ft_verbs *v, uintptr_t ctx, struct ibv_comp_cntr_caps *caps) {
	memset(caps, 0, sizeof *caps);
	if (!v->query_comp_cntr_caps) return ENOSYS;
	return CALL(v->query_comp_cntr_caps((struct ibv_context *)ctx, caps, sizeof *caps));
}

int ft_query_gid(const struct ft_verbs *v, uintptr_t ctx, uint8_t port, int index, uint8_t gid[16]) {
	union ibv_gid g;
	memset(&g, 0, sizeof g);
	if (!v->query_gid) return ENOSYS;
	int err = CALL(v->query_gid((struct ibv_context *)ctx, port, index, &g));
	memcpy(gid, g.raw, sizeof g.raw);
	return err;
}

int ft_get_event(const struct ft_verbs *v, uintptr_t ctx, uint32_t *type, uint64_t *element) {
	struct ibv_async_event e;
	memset(&e, 0, sizeof e);
	if (!v->get_async_event || !v->ack_async_event) return ENOSYS;
	int err = CALL(v->get_async_event((struct ibv_context *)ctx, &e));
	if (err) return err;
	*type = e.event_type;
	*element = 0;
	memcpy(element, &e.element, sizeof e.element);
	return 0;
}

void ft_ack_event(const struct ft_verbs *v, uint32_t type, uint64_t element) {
	struct ibv_async_event e;
	memset(&e, 0, sizeof e);
	e.event_type = type;
	memcpy(&e.element, &element, sizeof e.element);
	v->ack_async_event(&e);
}

int ft_alloc_pd(const struct ft_verbs *v, uintptr_t ctx, uintptr_t *pd) {
	if (!v->alloc_pd) return ENOSYS;
	CREATE(pd, v->alloc_pd((struct ibv_context *)ctx));
}

int ft_dealloc_pd(const struct ft_verbs *v, uintptr_t pd) {
	if (!v->dealloc_pd) return ENOSYS;
	return CALL(v->dealloc_pd((struct ibv_pd *)pd));
}

int ft_create_cq(const struct ft_verbs *v, uintptr_t ctx, int cqe, int vector, uintptr_t *out, int *got) {
	if (!v->create_cq) return ENOSYS;
	errno = 0;
	struct ibv_cq *cq = v->create_cq((struct ibv_context *)ctx, cqe, NULL, NULL, vector);
	if (!cq) return ft_no_object();
	*got = cq->cqe;
	*out = (uintptr_t)cq;
	return 0;
}

int ft_poll_cq(uintptr_t c, int n, struct ibv_wc *wc, int *got) {
	struct ibv_cq *cq = (struct ibv_cq *)c;
	*got = 0;
	if (!cq->context->ops.poll_cq) return EOPNOTSUPP;
	int r = cq->context->ops.poll_cq(cq, n, wc);
	if (r < 0) return EIO; /* no errno is promised: providers return -1 or -2 */
	*got = r;
	return 0;
}

int ft_destroy_cq(const struct ft_verbs *v, uintptr_t cq) {
	if (!v->destroy_cq) return ENOSYS;
	return CALL(v->destroy_cq((struct ibv_cq *)cq));
}

int ft_create_qp(const struct ft_verbs *v, uintptr_t pd, uintptr_t send_cq, uintptr_t recv_cq, uint32_t type,
		 const struct ibv_qp_cap *cap, int sq_sig_all, uintptr_t *out, uint32_t *qp_num) {
	if (!v->create_qp) return ENOSYS;
	struct ibv_qp_init_attr attr = {
		.send_cq = (struct ibv_cq *)send_cq,
		.recv_cq = (struct ibv_cq *)recv_cq,
		.cap = *cap,
		.qp_type = type,
		.sq_sig_all = sq_sig_all,
	};
	errno = 0;
	struct ibv_qp *qp = v->create_qp((struct ibv_pd *)pd, &attr);
	if (!qp) return ft_no_object();
	*qp_num = qp->qp_num;
	*out = (uintptr_t)qp;
	return 0;
}

int ft_modify_qp(const struct ft_verbs *v, uintptr_t qp, struct ibv_qp_attr *attr, uint32_t mask) {
	if (!v->modify_qp) return ENOSYS;
	return CALL(v->modify_qp((struct ibv_qp *)qp, attr, (int)mask));
}

int ft_query_qp(const struct ft_verbs *v, uintptr_t qp, uint32_t mask, struct ibv_qp_attr *attr) {
	struct ibv_qp_init_attr init;
	memset(attr, 0, sizeof *attr);
	if (!v->query_qp) return ENOSYS;
	return CALL(v->query_qp((struct ibv_qp *)qp, attr, (int)mask, &init));
}

int ft_destroy_qp(const struct ft_verbs *v, uintptr_t qp) {
	if (!v->destroy_qp) return ENOSYS;
	return CALL(v->destroy_qp((struct ibv_qp *)qp));
}

/* Specs are packed, and a provider may read them through aligned pointers: the
 * blob is copied to memory that malloc aligned, as a C caller's would be. */
int ft_create_flow(uintptr_t q, const void *blob, size_t len, uintptr_t *flow) {
	struct ibv_qp *qp = (struct ibv_qp *)q;
	struct verbs_context *vctx = verbs_get_ctx_op(qp->context, ibv_create_flow);
	if (!vctx) return EOPNOTSUPP;
	struct ibv_flow_attr *attr = malloc(len);
	if (!attr) return ENOMEM;
	memcpy(attr, blob, len);
	errno = 0;
	struct ibv_flow *f = vctx->ibv_create_flow(qp, attr);
	int err = f ? 0 : ft_no_object();
	free(attr);
	*flow = (uintptr_t)f;
	return err;
}

int ft_destroy_flow(uintptr_t f) {
	struct ibv_flow *flow = (struct ibv_flow *)f;
	struct verbs_context *vctx = verbs_get_ctx_op(flow->context, ibv_destroy_flow);
	if (!vctx) return EOPNOTSUPP;
	return CALL(vctx->ibv_destroy_flow(flow));
}

int ft_create_counters(uintptr_t c, uint32_t comp_mask, uintptr_t *counters) {
	struct ibv_context *ctx = (struct ibv_context *)c;
	struct verbs_context *vctx = verbs_get_ctx_op(ctx, create_counters);
	struct ibv_counters_init_attr attr = {.comp_mask = comp_mask};
	if (!vctx) return EOPNOTSUPP;
	CREATE(counters, vctx->create_counters(ctx, &attr));
}

int ft_attach_counters(uintptr_t n, uint32_t desc, uint32_t index, uint32_t comp_mask, uintptr_t flow) {
	struct ibv_counters *counters = (struct ibv_counters *)n;
	struct verbs_context *vctx = verbs_get_ctx_op(counters->context, attach_counters_point_flow);
	struct ibv_counter_attach_attr attr = {.counter_desc = desc, .index = index, .comp_mask = comp_mask};
	if (!vctx) return EOPNOTSUPP;
	return CALL(vctx->attach_counters_point_flow(counters, &attr, (struct ibv_flow *)flow));
}

int ft_read_counters(uintptr_t n, uint64_t *values, uint32_t nvalues, uint32_t flags) {
	struct ibv_counters *counters = (struct ibv_counters *)n;
	struct verbs_context *vctx = verbs_get_ctx_op(counters->context, read_counters);
	if (!vctx) return EOPNOTSUPP;
	return CALL(vctx->read_counters(counters, values, nvalues, flags));
}

int ft_destroy_counters(uintptr_t n) {
	struct ibv_counters *counters = (struct ibv_counters *)n;
	struct verbs_context *vctx = verbs_get_ctx_op(counters->context, destroy_counters);
	if (!vctx) return EOPNOTSUPP;
	return CALL(vctx->destroy_counters(counters));
}
