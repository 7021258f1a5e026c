/* SPDX-License-Identifier: Apache-2.0
 *
 * efa_ib_qp.c: the driver's completion queues and queue pairs. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "efa_ib.h"

static bool reserved(const uint8_t *bytes, size_t n)
{
	while (n)
		if (bytes[--n])
			return true;
	return false;
}

int efa_create_cq(struct uv_cq *cq, struct uv_call *call)
{
	struct efa_cq *c = (struct efa_cq *)cq;
	struct efa_ibv_create_cq cmd;
	struct efa_ibv_create_cq_resp resp = {0};
	void *ring;
	if (cq->flags)
		return EOPNOTSUPP;
	if (cq->cqe < 1 || cq->cqe > EFA_MAX_CQE)
		return EINVAL;
	if (call->driver.inlen < offsetof(struct efa_ibv_create_cq, flags) || !uv_udata_cleared(call, &call->driver, sizeof(cmd)))
		return EINVAL;
	int err = uv_udata_in(call, &call->driver, &cmd, sizeof(cmd));
	if (err)
		return err;
	/* No flag is offered: notifications, the sender's GID, and numbers of requests of 64 bits are not. */
	if (cmd.comp_mask || reserved(cmd.reserved_58, sizeof(cmd.reserved_58)) || cmd.flags || cq->channel)
		return cmd.flags || cq->channel ? EOPNOTSUPP : EINVAL;
	if (cmd.cq_entry_size < 16 || cmd.cq_entry_size > sizeof(struct efa_io_rx_cdesc_ex) || cmd.num_sub_cqs != EFA_SUB_CQS)
		return EINVAL;
	if ((err = uv_mmap_insert(call->file, cmd.cq_entry_size * cq->cqe * EFA_SUB_CQS, &c->key, &ring)))
		return err;
	c->ring = ring;
	c->entry_size = cmd.cq_entry_size;
	c->entries = cq->cqe;
	resp.q_mmap_key = c->key;
	resp.q_mmap_size = (cmd.cq_entry_size * cq->cqe * EFA_SUB_CQS + sysconf(_SC_PAGESIZE) - 1) & -sysconf(_SC_PAGESIZE);
	resp.cq_idx = cq->object.handle;
	return uv_udata_out(call, &call->driver, &resp, sizeof(resp));
}

int efa_destroy_cq(struct uv_cq *cq, struct uv_call *call)
{
	(void)call;
	uv_mmap_remove(cq->object.file, ((struct efa_cq *)cq)->key);
	return 0;
}

/* The number of a queue pair is its place in libefa's table and, in the bits above, a generation: completions of the
 * queue pair that had the place before are told from its own. */
static int number(struct efa_dev *dev, uint32_t *out)
{
	bool taken[EFA_MAX_QP] = {true, true}; /* 0 and 1 are no numbers of queue pairs */
	unsigned i = 0;
	for (struct efa_qp *q = dev->qps; q; q = q->next)
		taken[q->qp.qp_num % EFA_MAX_QP] = true;
	while (i < EFA_MAX_QP && taken[i])
		i++;
	if (i == EFA_MAX_QP)
		return ENOMEM;
	*out = i + EFA_MAX_QP * (dev->generation[i]++ % (65536 / EFA_MAX_QP));
	return 0;
}

static int check(const struct uv_qp *qp, struct uv_call *call, struct efa_ibv_create_qp *cmd)
{
	const struct ib_uverbs_qp_cap *cap = &qp->cap;
	if (cap->max_send_wr > EFA_MAX_LLQ / 64 || cap->max_recv_wr > EFA_MAX_RQ_WR || cap->max_send_sge > EFA_MAX_SQ_SGE ||
	    cap->max_recv_sge > EFA_MAX_RQ_SGE || cap->max_inline_data > EFA_INLINE)
		return EINVAL;
	if (qp->type != IB_UVERBS_QPT_DRIVER && qp->type != IB_UVERBS_QPT_UD)
		return EOPNOTSUPP;
	if (qp->flags & ~IB_UVERBS_QP_CREATE_SQ_SIG_ALL)
		return EOPNOTSUPP;
	if (call->driver.inlen < offsetof(struct efa_ibv_create_qp, flags) || !uv_udata_cleared(call, &call->driver, sizeof(*cmd)))
		return EINVAL;
	int err = uv_udata_in(call, &call->driver, cmd, sizeof(*cmd));
	if (err)
		return err;
	if (cmd->comp_mask || reserved(cmd->reserved_98, sizeof(cmd->reserved_98)))
		return EINVAL;
	if (cmd->flags || (qp->type == IB_UVERBS_QPT_DRIVER && cmd->driver_qp_type != EFA_QP_DRIVER_TYPE_SRD))
		return EOPNOTSUPP;
	/* The card's: requests of 64 or 128 bytes, in a ring of a power of two. */
	uint32_t wqe = cap->max_send_wr ? cmd->sq_ring_size / cap->max_send_wr : 0;
	if ((wqe != 64 && wqe != 128) || cmd->sq_ring_size > EFA_MAX_LLQ || cap->max_send_wr & (cap->max_send_wr - 1))
		return EINVAL;
	uint32_t descs = cmd->rq_ring_size / sizeof(struct efa_io_rx_desc);
	return descs & (descs - 1) || descs > 65536 ? EINVAL : 0;
}

static void unmap(struct efa_qp *q)
{
	for (unsigned i = 0; i < 4; i++)
		if (q->key[i])
			uv_mmap_remove(q->qp.object.file, q->key[i]);
}

int efa_create_qp(struct uv_qp *qp, struct uv_call *call)
{
	struct efa_dev *dev = efa_dev(call->device);
	struct efa_qp *q = (struct efa_qp *)qp;
	struct efa_ibv_create_qp cmd;
	struct efa_ibv_create_qp_resp resp = {.recv_sub_cq_idx = 1};
	void *at[4] = {NULL};
	int err = check(qp, call, &cmd);
	if (!err)
		err = number(dev, &qp->qp_num);
	size_t size[4] = {64, 64, cmd.sq_ring_size, cmd.rq_ring_size};
	for (unsigned i = 0; i < 4 && !err; i++)
		if (size[i])
			err = uv_mmap_insert(call->file, size[i], &q->key[i], &at[i]);
	if (!err) {
		resp.sq_db_mmap_key = q->key[0];
		resp.rq_db_mmap_key = q->key[1];
		resp.llq_desc_mmap_key = q->key[2];
		resp.rq_mmap_key = q->key[3];
		resp.rq_mmap_size = (cmd.rq_ring_size + sysconf(_SC_PAGESIZE) - 1) & -sysconf(_SC_PAGESIZE);
		err = uv_udata_out(call, &call->driver, &resp, sizeof(resp));
	}
	if (err) {
		unmap(q);
		return err;
	}
	q->srd = qp->type == IB_UVERBS_QPT_DRIVER;
	q->sq_db = at[0];
	q->rq_db = at[1];
	q->llq = at[2];
	q->rq = at[3];
	q->wqe_size = cmd.sq_ring_size / qp->cap.max_send_wr;
	q->sq_entries = qp->cap.max_send_wr;
	q->rq_entries = cmd.rq_ring_size / sizeof(*q->rq);
	q->rnr_retry = 7;
	q->next = dev->qps;
	dev->qps = q;
	uv_card_wake(call->device);
	return 0;
}

int efa_destroy_qp(struct uv_qp *qp, struct uv_call *call)
{
	struct efa_qp *q = (struct efa_qp *)qp, **at = &efa_dev(qp->object.device)->qps;
	(void)call;
	while (*at != q)
		at = &(*at)->next;
	*at = q->next;
	unmap(q);
	return 0;
}

/* enum ib_qp_state and enum ib_qp_attr_mask. */
enum { RESET, INIT, RTR, RTS, SQD, SQE, ERR, STATES };
enum {
	STATE = 1 << 0, CUR_STATE = 1 << 1, SQD_NOTIFY = 1 << 2, PKEY_INDEX = 1 << 4, PORT = 1 << 5, QKEY = 1 << 6,
	RNR_RETRY = 1 << 11, SQ_PSN = 1 << 16,
};

/* srd_qp_state_table of efa_verbs.c. A UD queue pair has the same transitions, without RNR_RETRY. */
static const struct {
	bool valid;
	uint32_t required, optional;
} transitions[STATES][STATES] = {
	[RESET] = {[RESET] = {true, 0, 0}, [INIT] = {true, PKEY_INDEX | PORT | QKEY, 0}},
	[INIT] = {[RESET] = {true, 0, 0}, [ERR] = {true, 0, 0}, [INIT] = {true, 0, PKEY_INDEX | PORT | QKEY}, [RTR] = {true, 0, PKEY_INDEX | QKEY}},
	[RTR] = {[RESET] = {true, 0, 0}, [ERR] = {true, 0, 0}, [RTS] = {true, SQ_PSN, CUR_STATE | QKEY | RNR_RETRY}},
	[RTS] = {[RESET] = {true, 0, 0}, [ERR] = {true, 0, 0}, [RTS] = {true, 0, CUR_STATE | QKEY}, [SQD] = {true, 0, SQD_NOTIFY}},
	[SQD] = {[RESET] = {true, 0, 0}, [ERR] = {true, 0, 0}, [RTS] = {true, 0, CUR_STATE | QKEY}, [SQD] = {true, 0, PKEY_INDEX | QKEY}},
	[SQE] = {[RESET] = {true, 0, 0}, [ERR] = {true, 0, 0}, [RTS] = {true, 0, CUR_STATE | QKEY}},
	[ERR] = {[RESET] = {true, 0, 0}, [ERR] = {true, 0, 0}},
};

int efa_modify_qp(struct uv_qp *qp, const struct ib_uverbs_modify_qp *attr, uint32_t mask, struct uv_call *call)
{
	struct efa_qp *q = (struct efa_qp *)qp;
	const uint32_t known = STATE | CUR_STATE | SQD_NOTIFY | PKEY_INDEX | PORT | QKEY | SQ_PSN | RNR_RETRY;
	if (call->driver.inlen && !uv_udata_cleared(call, &call->driver, 0))
		return EINVAL;
	unsigned from = mask & CUR_STATE ? attr->cur_qp_state : qp->state, to = mask & STATE ? attr->qp_state : from;
	if (mask & ~known)
		return EOPNOTSUPP;
	uint32_t required = transitions[from][to].required, optional = transitions[from][to].optional;
	if (!q->srd)
		optional &= ~(uint32_t)RNR_RETRY;
	if (!transitions[from][to].valid || (mask & required) != required || mask & ~(required | optional | STATE))
		return EINVAL;
	if ((mask & PORT && attr->port_num != 1) || (mask & PKEY_INDEX && attr->pkey_index))
		return EOPNOTSUPP;
	if (mask & CUR_STATE && attr->cur_qp_state != qp->state) /* the card's */
		return EINVAL;
	if (mask & QKEY)
		q->qkey = attr->qkey;
	if (mask & SQ_PSN)
		q->sq_psn = attr->sq_psn;
	if (mask & RNR_RETRY)
		q->rnr_retry = attr->rnr_retry;
	if (to == RESET) { /* posted requests are dropped. libefa begins again at 0 */
		*q->sq_db = *q->rq_db = 0;
		q->sq_next = q->rq_next = 0;
	}
	return 0;
}

int efa_query_qp(struct uv_qp *qp, struct ib_uverbs_query_qp_resp *attr, uint32_t mask)
{
	const struct efa_qp *q = (const struct efa_qp *)qp;
	if (mask & ~(STATE | CUR_STATE | PORT | QKEY | SQ_PSN | 1u << 19 /* CAP */ | RNR_RETRY))
		return EOPNOTSUPP;
	attr->qkey = q->qkey;
	attr->sq_psn = q->sq_psn;
	attr->port_num = 1;
	attr->rnr_retry = q->srd ? q->rnr_retry : 0;
	return 0;
}
