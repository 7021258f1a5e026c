/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory, addresses and work requests. */
//go:build cgo

#include "verbs_linux.h"
#include "dl_linux.h"

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

int ft_post_send(uintptr_t q, uintptr_t ah, const struct ft_send_wr *wrs, int n, int *posted) {
	struct ibv_qp *qp = (struct ibv_qp *)q;
	struct ibv_send_wr list[FT_BATCH] = {0}, *bad = NULL;
	struct ibv_sge sge[FT_BATCH];
	*posted = 0;
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
