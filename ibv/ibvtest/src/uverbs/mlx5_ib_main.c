/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_ib_main.c: a ConnectX as mlx5_ib has it: context, device, port, protection domains, memory regions, address
 * handles. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "efa_ib.h"
#include "mlx5_hw.h"
#include "mlx5_ib_flow.h"

uint32_t mlx5_ib_number(void)
{
	static uint32_t last = 0x100; /* under the lock */
	return ++last & 0xffffff;
}

static size_t min(size_t a, size_t b) { return a < b ? a : b; }

static int alloc_ucontext(struct uv_ucontext *context, struct uv_call *call)
{
	struct mlx5_ib_ucontext *c = (struct mlx5_ib_ucontext *)context;
	struct mlx5_ib_alloc_ucontext_req_v2 q;
	struct nic *nic;
	struct mlx5_ib_alloc_ucontext_resp r = {
		.qp_tab_size = 1 << 18, .bf_reg_size = 512, .cache_line_size = 64, .max_sq_desc_sz = 1024, .max_rq_desc_sz = 512,
		.max_send_wqebb = 32768, .max_recv_wr = 32768, .max_srq_recv_wr = 32768, .num_ports = 1, .cqe_version = 1,
		.cmds_supp_uhw = MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE | MLX5_USER_CMDS_SUPP_UHW_CREATE_AH,
		.eth_min_inline = MLX5_USER_INLINE_MODE_NONE, .log_uar_size = 12, .num_uars_per_page = 1, .num_dyn_bfregs = 1024};
	int err;
	if (call->driver.inlen < 8)
		return EINVAL;
	if ((err = uv_udata_in(call, &call->driver, &q, sizeof(q))))
		return err;
	if (q.flags & ~MLX5_IB_ALLOC_UCTX_DEVX)
		return EINVAL;
	if (q.comp_mask || q.reserved0 || q.reserved1 || q.reserved2)
		return EOPNOTSUPP;
	if (!q.total_num_bfregs || q.num_low_latency_bfregs > q.total_num_bfregs - 1)
		return EINVAL;
	if ((q.flags & MLX5_IB_ALLOC_UCTX_DEVX) && uv_without(call->device, "devx"))
		return EINVAL;
	c->flags = q.flags;
	c->lib_caps = q.lib_caps;
	/* Here the calling thread is in the namespace of the netdev. Without the engine only flows and their counters fail. */
	(void)uv_device_nic(call->device, &nic);
	if (!(q.lib_caps & MLX5_LIB_CAP_DYN_UAR))
		r.tot_bfregs = q.total_num_bfregs;
	r.response_length = min(sizeof(r), call->driver.outlen);
	return uv_udata_out(call, &call->driver, &r, r.response_length);
}

static int query_device(struct uv_device *device, struct ib_uverbs_ex_query_device_resp *attr, struct uv_call *call,
			bool extended)
{
	struct ib_uverbs_query_device_resp *a = &attr->base;
	struct mlx5_ib_query_device_resp r = {
		.cqe_comp_caps = {.max_num = MLX5_HW_BLOCK,
				  .supported_format = MLX5_HW_MINI_HASH | MLX5_HW_MINI_CSUM | MLX5_HW_MINI_CSUM_STRIDX},
		.flags = MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_COMP | MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_PAD,
	};
	(void)device;
	a->fw_ver = 16ull << 32 | 35 << 16 | 2000;
	a->max_mr_size = ~0ull;
	a->vendor_id = 0x02c9;
	a->vendor_part_id = 0x1019;
	a->max_qp = a->max_cq = a->max_mr = a->max_pd = a->max_ah = 1 << 18;
	a->max_qp_wr = 32768;
	a->max_cqe = (1 << 22) - 1;
	a->max_sge = a->max_sge_rd = 30;
	a->max_qp_rd_atom = a->max_qp_init_rd_atom = 16;
	a->max_res_rd_atom = 16 << 18;
	a->local_ca_ack_delay = 16;
	a->max_pkeys = 128;
	a->device_cap_flags = IB_UVERBS_DEVICE_BAD_PKEY_CNTR | IB_UVERBS_DEVICE_BAD_QKEY_CNTR |
			      IB_UVERBS_DEVICE_PORT_ACTIVE_EVENT | IB_UVERBS_DEVICE_SYS_IMAGE_GUID |
			      IB_UVERBS_DEVICE_RC_RNR_NAK_GEN | IB_UVERBS_DEVICE_MANAGED_FLOW_STEERING;
	attr->device_cap_flags_ex = a->device_cap_flags;
	if (!extended || !call->driver.outlen)
		return 0;
	if (call->driver.outlen < offsetof(struct mlx5_ib_query_device_resp, tso_caps))
		return EINVAL;
	r.response_length = min(sizeof(r), call->driver.outlen);
	return uv_udata_out(call, &call->driver, &r, r.response_length);
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
	p->max_msg_sz = 1 << 30;
	p->active_width = 2;
	p->active_speed = 64;
	p->link_layer = 2;
	p->flags = 1; /* IB_UVERBS_QPF_GRH_REQUIRED */
	return 0;
}

static int alloc_pd(struct uv_pd *pd, struct uv_call *call)
{
	struct mlx5_ib_pd *p = (struct mlx5_ib_pd *)pd;
	struct mlx5_ib_alloc_pd_resp r = {.pdn = p->pdn = mlx5_ib_number()};
	return uv_udata_out(call, &call->driver, &r, sizeof(r));
}

/* The card has a region from the end of its registration on to its own end. */
static int reg_user_mr(struct uv_mr *mr, struct uv_call *call)
{
	struct rdma_mr *m = &((struct mlx5_ib_mr *)mr)->card;
	(void)call;
	mr->lkey = mr->rkey = mlx5_ib_number() << 8 | 0x42;
	*m = (struct rdma_mr){.pd = mr->pd, .task = mr->object.task, .addr = mr->start, .length = mr->length, .iova = mr->iova,
			      .lkey = mr->lkey, .rkey = mr->rkey, .access = mr->access};
	rdma_link_append(rdma_wire_mrs(), &m->wire);
	return 0;
}

static int dereg_mr(struct uv_mr *mr, struct uv_call *call)
{
	(void)call;
	rdma_link_remove(&((struct mlx5_ib_mr *)mr)->card.wire);
	return 0;
}

/* The hardware address of a link-local GID. */
static int create_ah(struct uv_ah *ah, struct uv_call *call)
{
	const uint8_t *g = ah->attr.grh.dgid;
	struct mlx5_ib_create_ah_resp r = {.response_length = sizeof(r),
					   .dmac = {g[8] ^ 2, g[9], g[10], g[13], g[14], g[15]}};
	if (!ah->attr.is_global)
		return EINVAL;
	return uv_udata_out(call, &call->driver, &r, sizeof(r));
}

/* No ConnectX has completion counters. Behind the shim (../shim/comp_cntr.c) this one has those of the EFA, so that tests
 * count RC queue pairs. */
static int query_comp_cntr_caps(struct uv_device *device, uint32_t *max_counters, uint64_t *max_value, uint32_t *ops)
{
	return uv_shimmed() ? efa_query_comp_cntr_caps(device, max_counters, max_value, ops) : EOPNOTSUPP;
}

static int create_comp_cntr(struct uv_comp_cntr *cntr, struct uv_call *call)
{
	return uv_shimmed() ? efa_create_comp_cntr(cntr, call) : EOPNOTSUPP;
}

static const struct uv_device_ops mlx5_ib_ops = {
	.driver_id = RDMA_DRIVER_MLX5,
	.num_comp_vectors = 2,
	.size_ib_ucontext = sizeof(struct mlx5_ib_ucontext),
	.size_ib_pd = sizeof(struct mlx5_ib_pd),
	.size_ib_mr = sizeof(struct mlx5_ib_mr),
	.size_ib_ah = sizeof(struct uv_ah),
	.size_ib_cq = sizeof(struct mlx5_ib_cq),
	.size_ib_qp = sizeof(struct mlx5_ib_qp),
	.size_ib_flow = sizeof(struct mlx5_ib_flow),
	.size_ib_counters = sizeof(struct mlx5_ib_mcounters),
	.size_ib_comp_cntr = sizeof(struct efa_comp_cntr),
	.alloc_ucontext = alloc_ucontext,
	.query_device = query_device,
	.query_port = query_port,
	.alloc_pd = alloc_pd,
	.reg_user_mr = reg_user_mr,
	.dereg_mr = dereg_mr,
	.create_ah = create_ah,
	.create_cq = mlx5_ib_create_cq,
	.destroy_cq = mlx5_ib_destroy_cq,
	.create_qp = mlx5_ib_create_qp,
	.modify_qp = mlx5_ib_modify_qp,
	.query_qp = mlx5_ib_query_qp,
	.destroy_qp = mlx5_ib_destroy_qp,
	.card = mlx5_hw_card,
	.create_flow = mlx5_ib_create_flow,
	.destroy_flow = mlx5_ib_destroy_flow,
	.create_counters = mlx5_ib_create_counters,
	.destroy_counters = mlx5_ib_destroy_counters,
	.read_counters = mlx5_ib_read_counters,
	.query_comp_cntr_caps = query_comp_cntr_caps,
	.create_comp_cntr = create_comp_cntr,
	.destroy_comp_cntr = efa_destroy_comp_cntr,
	.set_comp_cntr = efa_set_comp_cntr,
	.inc_comp_cntr = efa_inc_comp_cntr,
	.qp_attach_comp_cntr = efa_qp_attach_comp_cntr,
};

static const struct uv_method *const methods[] = {mlx5_ib_uar_methods, mlx5_ib_flow_methods, mlx5_ib_devx_methods,
						 mlx5_ib_devx_queue_methods, efa_comp_cntr_methods, NULL};

const struct uv_driver mlx5_ib_driver = {"mlx5", &mlx5_ib_ops, methods};
