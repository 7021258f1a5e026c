/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory, addresses and work requests. */
//go:build cgo

#include "verbs_linux.h"
#include "dl_linux.h"
#include "efa_abi.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

int ft_reg_mr(const struct ft_verbs *v, uintptr_t pd, uint8_t *mem, size_t len, uint32_t access, struct ft_mr *out) {
	/* Without its destructor the memory could never be given back. */
	if (!v->reg_mr || !v->dereg_mr) return ENOSYS;
	errno = 0;
	struct ibv_mr *mr = v->reg_mr((struct ibv_pd *)pd, mem, len, (int)access);
	if (!mr) return ft_no_object();
	*out = (struct ft_mr){.mr = (uintptr_t)mr, .addr = (uintptr_t)mr->addr, .lkey = mr->lkey, .rkey = mr->rkey};
	return 0;
}

int ft_dereg_mr(const struct ft_verbs *v, uintptr_t mr) { return CALL(v->dereg_mr((struct ibv_mr *)mr)); }

int ft_create_ah(const struct ft_verbs *v, uintptr_t pd, struct ibv_ah_attr *attr, uintptr_t *out) {
	if (!v->create_ah || !v->destroy_ah) return ENOSYS;
	CREATE(out, v->create_ah((struct ibv_pd *)pd, attr));
}

int ft_destroy_ah(const struct ft_verbs *v, uintptr_t ah) { return CALL(v->destroy_ah((struct ibv_ah *)ah)); }

/* The number of accepted requests of a list. If a provider fails without setting bad, the first
 * request is taken as the refused one. */
#define POSTED(err, bad, first, n) (!(err) ? (n) : (bad) ? (int)((bad) - (first)) : 0)

/* Builds one request. A builder that the queue pair was made without is NULL. */
static int build(struct ibv_qp_ex *qp, struct ibv_ah *ah, const struct ft_send_wr *w) {
	qp->wr_id = w->wr_id;
	qp->wr_flags = w->flags & ~IBV_SEND_INLINE;
	if (w->opcode == IBV_WR_SEND && qp->wr_send)
		qp->wr_send(qp);
	else if (w->opcode == IBV_WR_SEND_WITH_IMM && qp->wr_send_imm)
		qp->wr_send_imm(qp, htonl(w->imm));
	else if (w->opcode == IBV_WR_RDMA_READ && qp->wr_rdma_read)
		qp->wr_rdma_read(qp, w->rkey, w->remote_addr);
	else if (w->opcode == IBV_WR_RDMA_WRITE && qp->wr_rdma_write)
		qp->wr_rdma_write(qp, w->rkey, w->remote_addr);
	else if (w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && qp->wr_rdma_write_imm)
		qp->wr_rdma_write_imm(qp, w->rkey, w->remote_addr, htonl(w->imm));
	else
		return EOPNOTSUPP;
	qp->wr_set_ud_addr(qp, ah, w->remote_qpn, w->remote_qkey);
	if (!w->sge.length) /* an empty segment names no region */
		qp->wr_set_sge_list(qp, 0, NULL);
	else if (w->flags & IBV_SEND_INLINE)
		qp->wr_set_inline_data(qp, (void *)w->sge.addr, w->sge.length);
	else
		qp->wr_set_sge(qp, w->sge.lkey, w->sge.addr, w->sge.length);
	return 0;
}

/* Posts all n requests or none. */
static int post_all(struct ibv_qp_ex *qp, struct ibv_ah *ah, const struct ft_send_wr *wrs, int n) {
	int err = 0;
	qp->wr_start(qp);
	for (int i = 0; i < n && !err; i++) err = build(qp, ah, &wrs[i]);
	if (err) {
		qp->wr_abort(qp);
		return err;
	}
	return CALL(qp->wr_complete(qp));
}

/* SRD: ibv_post_send of libefa knows sends only, the builders know every operation. A refused list
 * is posted request by request, so that the requests before the refused one are posted. */
static int post_srd(struct ibv_qp *qp, struct ibv_ah *ah, const struct ft_send_wr *wrs, int n, int *posted) {
	struct ibv_qp_ex *ex = (struct ibv_qp_ex *)qp;
	int err = post_all(ex, ah, wrs, n);
	if (!err) *posted = n;
	if (!err || n == 1) return err;
	for (err = 0; !err && *posted < n; *posted += !err) err = post_all(ex, ah, &wrs[*posted], 1);
	return err;
}

int ft_post_send(uintptr_t q, uintptr_t ah, const struct ft_send_wr *wrs, int n, int *posted) {
	struct ibv_qp *qp = (struct ibv_qp *)q;
	struct ibv_send_wr list[FT_BATCH] = {0}, *bad = NULL;
	struct ibv_sge sge[FT_BATCH];
	*posted = 0;
	if (qp->qp_type == IBV_QPT_DRIVER) return post_srd(qp, (struct ibv_ah *)ah, wrs, n, posted);
	if (!qp->context->ops.post_send) return EOPNOTSUPP;
	for (int i = 0; i < n; i++) {
		const struct ft_send_wr *w = &wrs[i];
		struct ibv_send_wr *l = &list[i];
		sge[i] = w->sge;
		l->wr_id = w->wr_id;
		l->next = i + 1 < n ? l + 1 : NULL;
		l->sg_list = &sge[i];
		l->num_sge = w->sge.length != 0; /* an empty segment names no region */
		l->opcode = w->opcode;
		l->send_flags = w->flags;
		l->imm_data = htonl(w->imm);
		if (ah) {
			l->wr.ud.ah = (struct ibv_ah *)ah;
			l->wr.ud.remote_qpn = w->remote_qpn;
			l->wr.ud.remote_qkey = w->remote_qkey;
		} else {
			l->wr.rdma.remote_addr = w->remote_addr;
			l->wr.rdma.rkey = w->rkey;
		}
	}
	int err = CALL(qp->context->ops.post_send(qp, list, &bad));
	*posted = POSTED(err, bad, list, n);
	return err;
}

int ft_post_recv(uintptr_t q, const struct ft_recv_wr *wrs, int n, int *posted) {
	struct ibv_qp *qp = (struct ibv_qp *)q;
	struct ibv_recv_wr list[FT_BATCH], *bad = NULL;
	struct ibv_sge sge[FT_BATCH];
	*posted = 0;
	if (!qp->context->ops.post_recv) return EOPNOTSUPP;
	for (int i = 0; i < n; i++) {
		sge[i] = wrs[i].sge;
		list[i] = (struct ibv_recv_wr){
			.wr_id = wrs[i].wr_id, .next = i + 1 < n ? &list[i + 1] : NULL,
			.sg_list = &sge[i], .num_sge = wrs[i].sge.length != 0,
		};
	}
	int err = CALL(qp->context->ops.post_recv(qp, list, &bad));
	*posted = POSTED(err, bad, list, n);
	return err;
}
