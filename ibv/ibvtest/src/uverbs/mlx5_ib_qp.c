/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_ib_qp.c: queue pairs. */
#include <errno.h>
#include <string.h>

#include "../nic.h"
#include "mlx5_hw.h"
#include "mlx5_ib.h"

enum {
	MAX_WQE_COUNT = 32768,
	INVALID_BFREG = 1U << 31,
	SCATTER = 32, /* bytes that an entry of 64 bytes has room for; twice as many in one of 128 */
};

static bool power_of_two(uint32_t n)
{
	return !(n & (n - 1));
}

static int check(const struct uv_qp *qp, const struct mlx5_ib_create_qp *c)
{
	enum {
		FLAGS = MLX5_QP_FLAG_SIGNATURE | MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_BFREG_INDEX | MLX5_QP_FLAG_ALLOW_SCATTER_CQE |
			MLX5_QP_FLAG_PACKET_BASED_CREDIT_MODE | MLX5_QP_FLAG_UAR_PAGE_INDEX | MLX5_QP_FLAG_TUNNEL_OFFLOADS |
			MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_UC | MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_MC,
	};
	switch (qp->type) {
	case IBV_QPT_RAW_PACKET:
		if (uv_without(qp->object.device, "raw"))
			return EOPNOTSUPP;
		break;
	case IBV_QPT_RC:
	case IBV_QPT_UC:
	case IBV_QPT_UD:
		break;
	default:
		return EOPNOTSUPP;
	}
	if (c->flags & ~FLAGS || c->flags & MLX5_QP_FLAG_SIGNATURE)
		return EINVAL; /* libmlx5 signs requests when MLX5_QP_SIGNATURE is set in its environment */
	if (!power_of_two(c->sq_wqe_count) || c->sq_wqe_count > MAX_WQE_COUNT)
		return EINVAL;
	if (!power_of_two(c->rq_wqe_count) || c->rq_wqe_count > MAX_WQE_COUNT || c->rq_wqe_shift > 10 ||
	    (c->rq_wqe_count && c->rq_wqe_shift < 4))
		return EINVAL;
	if (qp->cap.max_send_wr > MAX_WQE_COUNT || qp->cap.max_recv_wr > MAX_WQE_COUNT || c->db_addr & 7)
		return EINVAL;
	return c->flags & (MLX5_QP_FLAG_BFREG_INDEX | MLX5_QP_FLAG_UAR_PAGE_INDEX) ? 0 : ENOMEM; /* no static registers */
}

/* Small messages that arrive, and small reads, go to the entry of the completion: configure_responder_scat_cqe and
 * configure_requester_scat_cqe of the kernel. */
static void configure_scatter(struct mlx5_ib_qp *q, uint32_t flags)
{
	const struct mlx5_ib_cq *send = q->card.send_cq, *recv = q->card.recv_cq;
	if (!(flags & MLX5_QP_FLAG_SCATTER_CQE) || (q->card.type != IBV_QPT_RC && q->card.type != IBV_QPT_UC))
		return;
	q->card.scatter_receive = recv->cqe_size == 128 ? 2 * SCATTER : SCATTER;
	if (q->card.type == IBV_QPT_RC && (q->card.signal_all || flags & MLX5_QP_FLAG_ALLOW_SCATTER_CQE))
		q->card.scatter_read = send->cqe_size == 128 ? 2 * SCATTER : SCATTER;
}

int mlx5_ib_create_qp(struct uv_qp *qp, struct uv_call *call)
{
	struct mlx5_ib_qp *q = (struct mlx5_ib_qp *)qp;
	struct mlx5_ib_create_qp c;
	int err = uv_udata_in(call, &call->driver, &c, sizeof(c));
	if (err || (err = check(qp, &c)))
		return err;
	struct mlx5_ib_create_qp_resp r = {.bfreg_index = INVALID_BFREG};
	size_t size = call->driver.outlen < sizeof(r) ? call->driver.outlen : sizeof(r);
	if ((err = uv_udata_out(call, &call->driver, &r, size)))
		return err;
	q->rq = c.buf_addr;
	q->rq_count = c.rq_wqe_count;
	q->rq_shift = c.rq_wqe_shift;
	q->sq = qp->type == IBV_QPT_RAW_PACKET ? c.sq_buf_addr : c.buf_addr + ((uint64_t)c.rq_wqe_count << c.rq_wqe_shift);
	q->sq_count = c.sq_wqe_count;
	q->db = c.db_addr;
	q->card.ops = &mlx5_hw_ops;
	q->card.run = mlx5_hw_run;
	q->card.wake = RDMA_NEVER;
	q->card.pd = qp->pd;
	q->card.send_cq = qp->send_cq;
	q->card.recv_cq = qp->recv_cq;
	q->card.type = qp->type;
	q->card.uidx = c.uidx & 0xffffff;
	q->card.signal_all = qp->flags & IB_UVERBS_QP_CREATE_SQ_SIG_ALL;
	q->card.number = qp->qp_num = mlx5_ib_number();
	uv_gid(qp->object.device, q->card.gid.raw);
	configure_scatter(q, c.flags);
	if (qp->type == IBV_QPT_RAW_PACKET && !(qp->frames = nic_queue_new()))
		return ENOMEM;
	if ((err = mlx5_hw_qp_start(q))) {
		nic_queue_free(qp->frames);
		return err;
	}
	uv_card_wake(qp->object.device);
	return 0;
}

static void get_dest(const struct ib_uverbs_qp_dest *from, struct ibv_ah_attr *to)
{
	memcpy(to->grh.dgid.raw, from->dgid, sizeof(from->dgid));
	to->grh.flow_label = from->flow_label;
	to->grh.sgid_index = from->sgid_index;
	to->grh.hop_limit = from->hop_limit;
	to->grh.traffic_class = from->traffic_class;
	to->dlid = from->dlid;
	to->sl = from->sl;
	to->src_path_bits = from->src_path_bits;
	to->static_rate = from->static_rate;
	to->is_global = from->is_global;
	to->port_num = from->port_num;
}

static void put_dest(const struct ibv_ah_attr *from, struct ib_uverbs_qp_dest *to)
{
	memcpy(to->dgid, from->grh.dgid.raw, sizeof(to->dgid));
	to->flow_label = from->grh.flow_label;
	to->sgid_index = from->grh.sgid_index;
	to->hop_limit = from->grh.hop_limit;
	to->traffic_class = from->grh.traffic_class;
	to->dlid = from->dlid;
	to->sl = from->sl;
	to->src_path_bits = from->src_path_bits;
	to->static_rate = from->static_rate;
	to->is_global = from->is_global;
	to->port_num = from->port_num;
}

int mlx5_ib_modify_qp(struct uv_qp *qp, const struct ib_uverbs_modify_qp *attr, uint32_t mask, struct uv_call *call)
{
	struct mlx5_ib_qp *q = (struct mlx5_ib_qp *)qp;
	struct ibv_qp_attr a = {
		.qp_state = attr->qp_state,
		.cur_qp_state = attr->cur_qp_state,
		.path_mtu = attr->path_mtu,
		.path_mig_state = attr->path_mig_state,
		.qkey = attr->qkey,
		.rq_psn = attr->rq_psn,
		.sq_psn = attr->sq_psn,
		.dest_qp_num = attr->dest_qp_num,
		.qp_access_flags = attr->qp_access_flags,
		.pkey_index = attr->pkey_index,
		.en_sqd_async_notify = attr->en_sqd_async_notify,
		.max_rd_atomic = attr->max_rd_atomic,
		.max_dest_rd_atomic = attr->max_dest_rd_atomic,
		.min_rnr_timer = attr->min_rnr_timer,
		.port_num = attr->port_num,
		.timeout = attr->timeout,
		.retry_cnt = attr->retry_cnt,
		.rnr_retry = attr->rnr_retry,
	};
	(void)call;
	get_dest(&attr->dest, &a.ah_attr);
	get_dest(&attr->alt_dest, &a.alt_ah_attr);
	int err = rdma_modify(&q->card, &a, mask);
	if (!err && mask & IBV_QP_STATE && a.qp_state == IBV_QPS_RESET)
		mlx5_hw_qp_reset(q);
	mlx5_hw_cq_flush();
	return err;
}

int mlx5_ib_query_qp(struct uv_qp *qp, struct ib_uverbs_query_qp_resp *r, uint32_t mask)
{
	const struct mlx5_ib_qp *of = (struct mlx5_ib_qp *)qp;
	const struct rdma_qp *q = &of->card;
	(void)mask; /* a hint */
	/* The receive queue as it is. libmlx5 knows the sizes of the send queue. */
	r->max_recv_wr = of->rq_count;
	r->max_recv_sge = of->rq_count ? (1U << of->rq_shift) / 16 : 0;
	r->max_send_wr = r->max_send_sge = 0;
	r->qp_state = r->cur_qp_state = q->state;
	put_dest(&q->attr.ah_attr, &r->dest);
	put_dest(&q->attr.alt_ah_attr, &r->alt_dest);
	r->qkey = q->attr.qkey;
	r->rq_psn = q->rq_psn;
	r->sq_psn = q->sq_psn;
	r->dest_qp_num = q->attr.dest_qp_num;
	r->qp_access_flags = q->attr.qp_access_flags;
	r->pkey_index = q->attr.pkey_index;
	r->path_mtu = q->attr.path_mtu;
	r->path_mig_state = q->attr.path_mig_state;
	r->max_rd_atomic = q->attr.max_rd_atomic;
	r->max_dest_rd_atomic = q->attr.max_dest_rd_atomic;
	r->min_rnr_timer = q->attr.min_rnr_timer;
	r->port_num = q->attr.port_num;
	r->timeout = q->attr.timeout;
	r->retry_cnt = q->attr.retry_cnt;
	r->rnr_retry = q->attr.rnr_retry;
	return 0;
}

int mlx5_ib_destroy_qp(struct uv_qp *qp, struct uv_call *call)
{
	(void)call;
	mlx5_hw_cq_flush(); /* an entry of a block names the queue pair */
	mlx5_hw_qp_stop((struct mlx5_ib_qp *)qp);
	nic_queue_free(qp->frames);
	return 0;
}
