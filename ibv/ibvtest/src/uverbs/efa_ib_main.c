/* SPDX-License-Identifier: Apache-2.0
 *
 * efa_ib_main.c: the driver's operations, and its contexts, protection domains, memory regions and address handles. */
#include <errno.h>
#include <string.h>

#include "efa_ib.h"

static int alloc_ucontext(struct uv_ucontext *context, struct uv_call *call)
{
	struct efa_ibv_alloc_ucontext_cmd cmd;
	struct efa_ibv_alloc_ucontext_resp resp = {
		.cmds_supp_udata_mask = EFA_USER_CMDS_SUPP_UDATA_QUERY_DEVICE | EFA_USER_CMDS_SUPP_UDATA_CREATE_AH,
		.sub_cqs_per_cq = EFA_SUB_CQS,
		.inline_buf_size = EFA_INLINE,
		.inline_buf_size_ex = EFA_INLINE,
		.max_llq_size = EFA_MAX_LLQ,
		.max_tx_batch = 16,
		.min_sq_wr = 16,
	};
	const uint32_t caps = EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_TX_BATCH | EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_MIN_SQ_WR;
	(void)context;
	if (!efa_dev(call->device))
		return ENOMEM;
	int err = uv_udata_in(call, &call->driver, &cmd, sizeof(cmd));
	if (!err && (cmd.supported_caps & caps) != caps) /* efa_user_comp_handshake */
		err = EOPNOTSUPP;
	return err ? err : uv_udata_out(call, &call->driver, &resp, sizeof(resp));
}

static int query_device(struct uv_device *device, struct ib_uverbs_ex_query_device_resp *attr, struct uv_call *call, bool extended)
{
	const struct efa_ibv_ex_query_device_resp resp = {
		.max_sq_wr = EFA_MAX_LLQ / 64,
		.max_rq_wr = EFA_MAX_RQ_WR,
		.max_sq_sge = EFA_MAX_SQ_SGE,
		.max_rq_sge = EFA_MAX_RQ_SGE,
		.max_rdma_size = EFA_MAX_RDMA,
		.device_caps = EFA_QUERY_DEVICE_CAPS_RDMA_READ | EFA_QUERY_DEVICE_CAPS_RNR_RETRY | EFA_QUERY_DEVICE_CAPS_RDMA_WRITE |
			       (uv_without(device, "comp_cntr") ? 0 : EFA_QUERY_DEVICE_CAPS_COMP_CNTR),
	};
	attr->base.max_mr_size = UINT64_MAX;
	attr->base.page_size_cap = ~UINT64_C(0xfff);
	attr->base.vendor_id = 0x1d0f;
	attr->base.vendor_part_id = 0xefa2;
	attr->base.max_qp = EFA_MAX_QP;
	attr->base.max_qp_wr = EFA_MAX_LLQ / 64;
	attr->base.max_sge = EFA_MAX_SQ_SGE;
	attr->base.max_sge_rd = 1;
	attr->base.max_cq = EFA_MAX_QP;
	attr->base.max_cqe = EFA_MAX_CQE;
	attr->base.max_mr = EFA_MAX_MR;
	attr->base.max_pd = UINT16_MAX;
	attr->base.max_ah = EFA_MAX_AH;
	attr->base.max_pkeys = 1;
	attr->base.phys_port_cnt = 1;
	return extended ? uv_udata_out(call, &call->driver, &resp, sizeof(resp)) : 0;
}

static int query_port(struct uv_device *device, struct ib_uverbs_query_port_resp_ex *attr)
{
	struct ib_uverbs_query_port_resp *p = &attr->legacy_resp;
	(void)device;
	p->state = 4;      /* IB_PORT_ACTIVE */
	p->phys_state = 5; /* IB_PORT_PHYS_STATE_LINK_UP */
	p->gid_tbl_len = 1;
	p->pkey_tbl_len = 1;
	p->max_mtu = p->active_mtu = 5; /* IB_MTU_4096, the largest of the enum below EFA_MTU */
	p->lmc = 1;
	p->max_msg_sz = EFA_MTU;
	p->max_vl_num = 1;
	p->active_speed = 32; /* IB_SPEED_EDR */
	p->active_width = 2;  /* IB_WIDTH_4X */
	return 0;
}

static int alloc_pd(struct uv_pd *pd, struct uv_call *call)
{
	struct efa_ibv_alloc_pd_resp resp = {.pdn = ++efa_dev(call->device)->last_pdn};
	if (call->driver.inlen && !uv_udata_cleared(call, &call->driver, 0))
		return EINVAL;
	((struct efa_pd *)pd)->pdn = resp.pdn;
	return uv_udata_out(call, &call->driver, &resp, sizeof(resp));
}

static int reg_user_mr(struct uv_mr *mr, struct uv_call *call)
{
	struct efa_dev *dev = efa_dev(call->device);
	unsigned i = 1;
	if (mr->access & ~(IB_UVERBS_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_REMOTE_READ | IB_UVERBS_ACCESS_REMOTE_WRITE |
			   IB_UVERBS_ACCESS_OPTIONAL_RANGE))
		return EOPNOTSUPP;
	while (i < EFA_MAX_MR && dev->mrs[i])
		i++;
	if (i == EFA_MAX_MR)
		return ENOMEM;
	dev->mrs[i] = (struct efa_mr *)mr;
	dev->mrs[i]->index = i;
	mr->lkey = i << 8;
	mr->rkey = i << 8 | 1; /* a local key is not the remote one */
	return 0;
}

static int dereg_mr(struct uv_mr *mr, struct uv_call *call)
{
	(void)call;
	efa_dev(mr->object.device)->mrs[((struct efa_mr *)mr)->index] = NULL;
	return 0;
}

unsigned efa_ah_number(const struct efa_dev *dev, const struct uv_pd *pd, const uint8_t gid[16])
{
	for (unsigned i = 1; i < EFA_MAX_AH; i++)
		if (dev->ahs[i] && dev->ahs[i]->ah.pd == pd && !memcmp(dev->ahs[i]->ah.attr.grh.dgid, gid, 16))
			return i;
	return EFA_NO_AH;
}

/* Handles for one address in one domain share their number: a completion names its sender by it. */
static int create_ah(struct uv_ah *ah, struct uv_call *call)
{
	struct efa_dev *dev = efa_dev(call->device);
	struct efa_ah *a = (struct efa_ah *)ah;
	struct efa_ibv_create_ah_resp resp = {0};
	unsigned i;
	if (call->driver.inlen && !uv_udata_cleared(call, &call->driver, 0))
		return EINVAL;
	i = efa_ah_number(dev, ah->pd, ah->attr.grh.dgid);
	if (i == EFA_NO_AH)
		for (i = 1; i < EFA_MAX_AH && dev->ahs[i];)
			i++;
	if (i == EFA_MAX_AH)
		return ENOMEM;
	resp.efa_address_handle = i;
	int err = uv_udata_out(call, &call->driver, &resp, sizeof(resp));
	if (err)
		return err;
	a->index = i;
	a->next = dev->ahs[i];
	dev->ahs[i] = a;
	return 0;
}

static int destroy_ah(struct uv_ah *ah, struct uv_call *call)
{
	struct efa_ah *a = (struct efa_ah *)ah, **at = &efa_dev(ah->object.device)->ahs[a->index];
	(void)call;
	while (*at != a)
		at = &(*at)->next;
	*at = a->next;
	return 0;
}

static const struct uv_device_ops ops = {
	.driver_id = RDMA_DRIVER_EFA,
	.num_comp_vectors = 1,
	.size_ib_ucontext = sizeof(struct uv_ucontext),
	.size_ib_pd = sizeof(struct efa_pd),
	.size_ib_mr = sizeof(struct efa_mr),
	.size_ib_ah = sizeof(struct efa_ah),
	.size_ib_cq = sizeof(struct efa_cq),
	.size_ib_qp = sizeof(struct efa_qp),
	.size_ib_comp_cntr = sizeof(struct efa_comp_cntr),
	.alloc_ucontext = alloc_ucontext,
	.query_device = query_device,
	.query_port = query_port,
	.alloc_pd = alloc_pd,
	.reg_user_mr = reg_user_mr,
	.dereg_mr = dereg_mr,
	.create_ah = create_ah,
	.destroy_ah = destroy_ah,
	.create_cq = efa_create_cq,
	.destroy_cq = efa_destroy_cq,
	.create_qp = efa_create_qp,
	.modify_qp = efa_modify_qp,
	.query_qp = efa_query_qp,
	.destroy_qp = efa_destroy_qp,
	.query_comp_cntr_caps = efa_query_comp_cntr_caps,
	.create_comp_cntr = efa_create_comp_cntr,
	.destroy_comp_cntr = efa_destroy_comp_cntr,
	.set_comp_cntr = efa_set_comp_cntr,
	.inc_comp_cntr = efa_inc_comp_cntr,
	.qp_attach_comp_cntr = efa_qp_attach_comp_cntr,
	.card = efa_card,
};

static const struct uv_method *const methods[] = {efa_comp_cntr_methods, NULL};

const struct uv_driver efa_ib_driver = {"efa", &ops, methods};
