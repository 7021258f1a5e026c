/* SPDX-License-Identifier: Apache-2.0
 *
 * efa_hw.c: the card at work. It reads the requests that libefa wrote into the mapped queues, moves messages between the
 * queue pairs of all EFA devices, and writes completions. The card signals every request, because libefa posts no other.
 *
 * A datagram (UD) is lost without a receiver, and its sender is told that it was sent. A scalable reliable datagram (SRD)
 * waits for a receive request as long as rnr_retry says, and ends with the responder's error. An error leaves the queue
 * pair in RTS, on both sides. A queue pair in ERR flushes. */
#include <string.h>

#include "efa_ib.h"

enum { RTR = 2, RTS, SQD, ERR = 6 };
enum { GRH = 40 }; /* bytes before the message of a UD queue pair */
enum { RNR_PASSES = 1000 }; /* of the card for one retry */

static uint64_t address(uint32_t lo, uint32_t hi)
{
	return (uint64_t)hi << 32 | lo;
}

/* The queue pair of that number at that address, in a state in which it receives. */
static struct efa_qp *find(const uint8_t gid[16], uint32_t number, bool srd, bool *reached)
{
	*reached = false;
	for (struct uv_device *d = uv_devices(); d; d = d->next) {
		uint8_t own[16];
		if (d->ops->driver_id != RDMA_DRIVER_EFA || !d->priv)
			continue;
		uv_gid(d, own);
		if (memcmp(own, gid, sizeof(own)))
			continue;
		*reached = !d->removed;
		for (struct efa_qp *p = efa_dev(d)->qps; p; p = p->next)
			if (p->qp.qp_num == number && p->srd == srd && p->qp.state >= RTR && p->qp.state < ERR && !uv_lost(p->qp.object.file))
				return p;
	}
	return NULL;
}

unsigned efa_receive_next(struct efa_qp *q, struct efa_io_rx_desc desc[EFA_BUFFERS])
{
	uint16_t end = __atomic_load_n(q->rq_db, __ATOMIC_ACQUIRE);
	for (unsigned n = 0; n < EFA_BUFFERS && (uint16_t)(q->rq_next + n) != end; n++) {
		desc[n] = q->rq[(uint16_t)(q->rq_next + n) & (q->rq_entries - 1)];
		if (desc[n].lkey_ctrl & EFA_IO_RX_DESC_LAST)
			return n + 1;
	}
	return 0;
}

void efa_receive(struct efa_qp *q, struct efa_io_rx_cdesc_ex *e, uint8_t status, unsigned descriptors)
{
	e->status = status;
	e->flags |= EFA_IO_RECV_QUEUE << 1;
	e->qp_num = q->qp.qp_num;
	q->rq_next += descriptors;
	efa_count(&q->qp, IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_RECV, !status);
	efa_complete((struct efa_cq *)q->qp.recv_cq, 1, e);
}

/* A request under way. */
struct request {
	struct efa_qp *q, *peer;
	struct efa_io_tx_wqe_128 wqe;
	unsigned op;
	struct efa_buffers local;
	const uint8_t *inlined;
};

/* The requester's number at the responder: EFA_NO_AH where the responder has made no address handle for it. */
static uint16_t sender(const struct request *r)
{
	uint8_t gid[16];
	uv_gid(r->q->qp.object.device, gid);
	return efa_ah_number(efa_dev(r->peer->qp.object.device), r->peer->qp.pd, gid);
}

/* Finds the local buffers. */
static uint8_t gather(struct request *r)
{
	const struct efa_io_tx_meta_desc *m = &r->wqe.meta;
	const struct efa_io_tx_buf_desc *b = r->op == EFA_IO_SEND ? r->wqe.data.sgl : r->wqe.data.rdma_req.local_mem;
	unsigned most = r->op == EFA_IO_SEND ? EFA_MAX_SQ_SGE : 1;
	if (m->ctrl1 & EFA_IO_TX_META_DESC_INLINE_MSG) {
		r->inlined = r->op == EFA_IO_SEND ? r->wqe.data.inline_data : r->wqe.data.rdma_req.inline_data;
		r->local.length = m->length;
		return m->length > EFA_INLINE ? EFA_IO_COMP_STATUS_LOCAL_ERROR_BAD_LENGTH : 0;
	}
	if (m->length > most)
		return EFA_IO_COMP_STATUS_LOCAL_ERROR_BAD_LENGTH;
	for (unsigned i = 0; i < m->length; i++)
		if (!efa_translate(efa_dev(r->q->qp.object.device), r->q->qp.pd, b[i].lkey & EFA_IO_RX_DESC_LKEY, false,
				   r->op == EFA_IO_RDMA_READ ? IB_UVERBS_ACCESS_LOCAL_WRITE : 0, address(b[i].buf_addr_lo, b[i].buf_addr_hi),
				   b[i].length, &r->local))
			return EFA_IO_COMP_STATUS_LOCAL_ERROR_INVALID_LKEY;
	return 0;
}

/* Delivers a message into the receive request at the head, which has n descriptors. */
static uint8_t deliver(struct request *r, const struct efa_io_rx_desc *desc, unsigned n)
{
	struct efa_qp *p = r->peer;
	uint64_t skip = p->srd ? 0 : GRH;
	struct efa_buffers to = {.n = 0};
	struct efa_io_rx_cdesc_ex e = {.req_id = desc[0].req_id, .ah = sender(r), .src_qp_num = r->q->qp.qp_num, .length = r->local.length + skip};
	uint8_t status = 0;
	for (unsigned i = 0; i < n && !status; i++)
		if (!efa_translate(efa_dev(p->qp.object.device), p->qp.pd, desc[i].lkey_ctrl & EFA_IO_RX_DESC_LKEY, false,
				   IB_UVERBS_ACCESS_LOCAL_WRITE, address(desc[i].buf_addr_lo, desc[i].buf_addr_hi), desc[i].length, &to))
			status = EFA_IO_COMP_STATUS_LOCAL_ERROR_INVALID_LKEY;
	if (!status && to.length < r->local.length + skip)
		status = EFA_IO_COMP_STATUS_LOCAL_ERROR_BAD_LENGTH;
	if (!status && efa_copy(&to, skip, &r->local, r->inlined))
		status = EFA_IO_COMP_STATUS_LOCAL_ERROR_INVALID_LKEY;
	if (r->wqe.meta.ctrl1 & EFA_IO_TX_META_DESC_HAS_IMM) {
		e.imm = r->wqe.meta.immediate_data;
		e.flags |= EFA_IO_CDESC_COMMON_HAS_IMM;
	}
	efa_receive(p, &e, status, n);
	if (!status)
		return 0;
	return status == EFA_IO_COMP_STATUS_LOCAL_ERROR_BAD_LENGTH ? EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_LENGTH
								   : EFA_IO_COMP_STATUS_REMOTE_ERROR_ABORT;
}

/* Reads or writes the memory of the responder. A write with immediate data takes a receive request of n descriptors. */
static uint8_t access_remote(struct request *r, const struct efa_io_rx_desc *desc, unsigned n)
{
	const struct efa_io_remote_mem_addr *m = &r->wqe.data.rdma_req.remote_mem;
	struct efa_qp *p = r->peer;
	bool reads = r->op == EFA_IO_RDMA_READ;
	struct efa_buffers remote = {.n = 0};
	if (m->length != r->local.length || m->length > EFA_MAX_RDMA)
		return EFA_IO_COMP_STATUS_LOCAL_ERROR_BAD_LENGTH;
	if (!efa_translate(efa_dev(p->qp.object.device), p->qp.pd, m->rkey, true,
			   reads ? IB_UVERBS_ACCESS_REMOTE_READ : IB_UVERBS_ACCESS_REMOTE_WRITE, address(m->buf_addr_lo, m->buf_addr_hi),
			   m->length, &remote))
		return EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_ADDRESS;
	if (reads ? efa_copy(&r->local, 0, &remote, NULL) : efa_copy(&remote, 0, &r->local, r->inlined))
		return EFA_IO_COMP_STATUS_REMOTE_ERROR_ABORT;
	efa_count(&p->qp, reads ? IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ : IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE, true);
	if (n) {
		struct efa_io_rx_cdesc_ex e = {
			.req_id = desc[0].req_id, .ah = sender(r), .src_qp_num = r->q->qp.qp_num, .imm = r->wqe.meta.immediate_data,
			.flags = EFA_IO_CDESC_COMMON_HAS_IMM | EFA_IO_RDMA_WRITE << 4, .length = m->length, .u.length_hi = m->length >> 16,
		};
		efa_receive(p, &e, 0, n);
	}
	return 0;
}

/* Does the request. false: it waits for a receive request of the peer. */
static bool run(struct request *r, uint8_t *status)
{
	struct efa_qp *q = r->q;
	const struct efa_io_tx_meta_desc *m = &r->wqe.meta;
	const struct efa_ah *ah = m->ah < EFA_MAX_AH ? efa_dev(q->qp.object.device)->ahs[m->ah] : NULL;
	struct efa_io_rx_desc desc[EFA_BUFFERS];
	bool receives = r->op == EFA_IO_SEND || (r->op == EFA_IO_RDMA_WRITE && m->ctrl1 & EFA_IO_TX_META_DESC_HAS_IMM), reached;
	unsigned n = 0;
	*status = 0;
	if (r->op > EFA_IO_RDMA_WRITE || (!q->srd && r->op != EFA_IO_SEND))
		*status = EFA_IO_COMP_STATUS_LOCAL_ERROR_UNSUPPORTED_OP;
	else if (!ah || ah->ah.pd != q->qp.pd)
		*status = EFA_IO_COMP_STATUS_LOCAL_ERROR_INVALID_AH;
	else
		*status = gather(r);
	if (!*status && r->op == EFA_IO_SEND && r->local.length > EFA_MTU)
		*status = EFA_IO_COMP_STATUS_LOCAL_ERROR_BAD_LENGTH;
	if (*status)
		return true;
	r->peer = find(ah->ah.attr.grh.dgid, m->dest_qp_num, q->srd, &reached);
	if (!r->peer || (m->qkey & 1u << 31 ? q->qkey : m->qkey) != r->peer->qkey) {
		*status = !q->srd ? 0 : reached ? EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_DEST_QPN : EFA_IO_COMP_STATUS_LOCAL_ERROR_UNREACH_REMOTE;
		return true;
	}
	if (receives && !(n = efa_receive_next(r->peer, desc))) {
		if (!q->srd)
			return true;
		if (q->rnr_retry == 7 || q->rnr++ < RNR_PASSES * q->rnr_retry)
			return false;
		*status = EFA_IO_COMP_STATUS_REMOTE_ERROR_RNR;
		return true;
	}
	*status = r->op == EFA_IO_SEND ? deliver(r, desc, n) : access_remote(r, desc, n);
	if (!q->srd)
		*status = 0;
	return true;
}

static void complete_send(struct efa_qp *q, const struct request *r, uint8_t status)
{
	static const enum ib_uverbs_qp_attach_comp_cntr_op ops[] = {
		[EFA_IO_SEND] = IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_SEND,
		[EFA_IO_RDMA_READ] = IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_RDMA_READ,
		[EFA_IO_RDMA_WRITE] = IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE,
	};
	struct efa_io_rx_cdesc_ex e = {
		.req_id = r->wqe.meta.req_id, .status = status, .qp_num = q->qp.qp_num, .flags = EFA_IO_SEND_QUEUE << 1 | (r->op & 7) << 4,
	};
	memcpy((uint8_t *)&e + offsetof(struct efa_io_rx_cdesc_ex, length), r->wqe.meta.req_id_ex, sizeof(r->wqe.meta.req_id_ex));
	q->sq_next++;
	q->rnr = 0;
	if (r->op <= EFA_IO_RDMA_WRITE)
		efa_count(&q->qp, ops[r->op], !status);
	if (r->wqe.meta.ctrl2 & EFA_IO_TX_META_DESC_COMP_REQ)
		efa_complete((struct efa_cq *)q->qp.send_cq, 0, &e);
}

/* One queue pair, at most so many requests. */
static unsigned work(struct efa_qp *q)
{
	unsigned done = 0;
	uint16_t end = __atomic_load_n(q->sq_db, __ATOMIC_ACQUIRE);
	bool flushes = q->qp.state == ERR;
	for (; (q->qp.state == RTS || flushes) && q->sq_next != end && done < q->sq_entries; done++) {
		struct request r = {.q = q};
		uint8_t status = EFA_IO_COMP_STATUS_FLUSHED;
		memcpy(&r.wqe, q->llq + (size_t)(q->sq_next & (q->sq_entries - 1)) * q->wqe_size, q->wqe_size);
		r.op = r.wqe.meta.ctrl1 & EFA_IO_TX_META_DESC_OP_TYPE;
		if (!flushes && !run(&r, &status))
			break;
		complete_send(q, &r, status);
	}
	struct efa_io_rx_desc desc[EFA_BUFFERS];
	for (unsigned n; flushes && (n = efa_receive_next(q, desc)); done++)
		efa_receive(q, &(struct efa_io_rx_cdesc_ex){.req_id = desc[0].req_id, .ah = EFA_NO_AH}, EFA_IO_COMP_STATUS_FLUSHED, n);
	return done;
}

unsigned efa_card(struct uv_device *device)
{
	unsigned done = 0;
	for (struct efa_qp *q = efa_dev(device)->qps; q; q = q->next)
		if (!uv_lost(q->qp.object.file))
			done += work(q);
	return done;
}
