/* SPDX-License-Identifier: Apache-2.0
 *
 * efa_ib_main.c: an EFA as the driver efa has it: context, device, port, protection domains, memory regions, address
 * handles. */
#include <errno.h>
#include <string.h>

#include "efa_ib.h"

uint32_t efa_number(void)
{
	static uint32_t last; /* under the lock */
	return ++last & 0xffff;
}

static int alloc_ucontext(struct uv_ucontext *context, struct uv_call *call)
{
	struct efa_ibv_alloc_ucontext_cmd c;
	struct efa_ibv_alloc_ucontext_resp r = {
		.cmds_supp_udata_mask = EFA_USER_CMDS_SUPP_UDATA_QUERY_DEVICE | EFA_USER_CMDS_SUPP_UDATA_CREATE_AH,
		.sub_cqs_per_cq = 2, .inline_buf_size = 32, .inline_buf_size_ex = 32, .max_llq_size = 131072, .max_tx_batch = 16,
		.min_sq_wr = 16};
	(void)context;
	int err = uv_udata_in(call, &call->driver, &c, sizeof(c));
	if (err)
		return err;
	/* The caller must know the limits of the device. */
	if (!(c.supported_caps & EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_TX_BATCH) ||
	    !(c.supported_caps & EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_MIN_SQ_WR))
		return EOPNOTSUPP;
	return uv_udata_out(call, &call->driver, &r, sizeof(r));
}

static int query_device(struct uv_device *device, struct ib_uverbs_ex_query_device_resp *attr, struct uv_call *call,
			bool extended)
{
	struct ib_uverbs_query_device_resp *a = &attr->base;
	struct efa_ibv_ex_query_device_resp r = {
		.max_sq_wr = 4096, .max_rq_wr = 32768, .max_sq_sge = 2, .max_rq_sge = 3, .max_rdma_size = 1 << 30,
		.device_caps = EFA_QUERY_DEVICE_CAPS_RDMA_READ | EFA_QUERY_DEVICE_CAPS_RNR_RETRY |
			       EFA_QUERY_DEVICE_CAPS_CQ_NOTIFICATIONS | EFA_QUERY_DEVICE_CAPS_CQ_WITH_SGID |
			       EFA_QUERY_DEVICE_CAPS_RDMA_WRITE};
	if (extended && !uv_udata_cleared(call, &call->driver, 0))
		return EINVAL;
	if (!uv_without(device, "comp_cntr"))
		r.device_caps |= EFA_QUERY_DEVICE_CAPS_COMP_CNTR;
	a->max_mr_size = 1ull << 40;
	a->vendor_id = 0x1d0f;
	a->vendor_part_id = 0xefa2;
	a->hw_ver = 0xefa2;
	a->max_qp = a->max_cq = a->max_pd = a->max_ah = a->max_mr = 1024;
	a->max_qp_wr = 4096;
	a->max_cqe = 32768;
	a->max_sge = 2;
	a->max_sge_rd = 1;
	a->max_pkeys = 1;
	return extended ? uv_udata_out(call, &call->driver, &r, sizeof(r)) : 0;
}

static int query_port(struct uv_device *device, struct ib_uverbs_query_port_resp_ex *attr)
{
	struct ib_uverbs_query_port_resp *p = &attr->legacy_resp;
	(void)device;
	p->state = 4;
	p->phys_state = 5;
	p->max_mtu = p->active_mtu = 5;
	p->gid_tbl_len = 1;
	p->pkey_tbl_len = 1;
	p->lmc = 1;
	p->max_vl_num = 1;
	p->max_msg_sz = 8928;
	p->active_width = 2;
	p->active_speed = 32;
	p->link_layer = 0;
	return 0;
}

static int alloc_pd(struct uv_pd *pd, struct uv_call *call)
{
	struct efa_pd *p = (struct efa_pd *)pd;
	struct efa_ibv_alloc_pd_resp r = {.pdn = p->pdn = efa_number()};
	if (!uv_udata_cleared(call, &call->driver, 0))
		return EINVAL;
	return uv_udata_out(call, &call->driver, &r, sizeof(r));
}

static int reg_user_mr(struct uv_mr *mr, struct uv_call *call)
{
	if (!uv_udata_cleared(call, &call->driver, 0))
		return EINVAL;
	mr->lkey = efa_number() << 8 | 0x11;
	mr->rkey = mr->lkey;
	return 0;
}

static int create_ah(struct uv_ah *ah, struct uv_call *call)
{
	struct efa_ah *a = (struct efa_ah *)ah;
	struct efa_ibv_create_ah_resp r = {.efa_address_handle = a->number = efa_number()};
	if (!uv_udata_cleared(call, &call->driver, 0))
		return EINVAL;
	return uv_udata_out(call, &call->driver, &r, sizeof(r));
}

static const struct uv_device_ops efa_dev_ops = {
	.driver_id = RDMA_DRIVER_EFA,
	.num_comp_vectors = 2,
	.size_ib_ucontext = sizeof(struct uv_ucontext),
	.size_ib_pd = sizeof(struct efa_pd),
	.size_ib_mr = sizeof(struct uv_mr),
	.size_ib_ah = sizeof(struct efa_ah),
	.alloc_ucontext = alloc_ucontext,
	.query_device = query_device,
	.query_port = query_port,
	.alloc_pd = alloc_pd,
	.reg_user_mr = reg_user_mr,
	.create_ah = create_ah,
};

static const struct uv_method *const methods[] = {NULL};

const struct uv_driver efa_ib_driver = {"efa", &efa_dev_ops, methods};
