/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_run.c: the send queue at work: requests are executed in order, by the rules of their
 * transport, and each ends with a status. A reliable one waits for its peer, with the time-outs
 * of ibv_modify_qp(3). On the other transports a message without a receiver is lost and counts as
 * sent.
 *
 * Errors reach both ends as in ibv_poll_cq(3) and the InfiniBand specification (9.9): the
 * requester by its status, the responder by the completion of its receive, or by an event if it
 * has no receive. */
#include <endian.h>
#include <string.h>

#include "verbs_data.h"

static uint32_t packets(struct soft_qp *q, uint64_t length)
{
	uint64_t mtu = UINT64_C(128) << q->attr.path_mtu, n = (length + mtu - 1) / mtu;
	return n ? n : 1;
}

/* Returns the queue pair at a GID and QP number. */
static struct soft_qp *find(const union ibv_gid *gid, uint32_t number, uint32_t type)
{
	struct soft_link *qps = verbs_wire_qps();
	for (struct soft_link *l = qps->next; l != qps; l = l->next) {
		struct soft_qp *p = VERBS_OUTER(l, struct soft_qp, wire);
		union ibv_gid own;
		if (p->qp.qp_num != number || p->qp.qp_type != type || p->gone)
			continue;
		verbs_gid(p->qp.context->device, &own);
		bool receives = p->state != IBV_QPS_RESET && p->state != IBV_QPS_INIT && p->state != IBV_QPS_ERR;
		return receives && !memcmp(&own, gid, sizeof(own)) ? p : NULL;
	}
	return NULL;
}

/* The queue pair that q is connected to, if it is connected to q in turn. */
static struct soft_qp *peer(struct soft_qp *q)
{
	union ibv_gid own;
	struct soft_qp *p = find(&q->attr.ah_attr.grh.dgid, q->attr.dest_qp_num, q->qp.qp_type);
	verbs_gid(q->qp.context->device, &own);
	if (!p || p->attr.dest_qp_num != q->qp.qp_num || memcmp(&p->attr.ah_attr.grh.dgid, &own, sizeof(own)))
		return NULL;
	return p;
}

/* How a request ended: its status, and whether the responder's queue pair did with it. It
 * does after the request has completed: it may be the same one. */
struct outcome {
	uint32_t status;
	bool fatal;     /* for the responder */
	uint32_t event; /* that tells it; 0: a completion has */
};

static struct outcome refuse(uint32_t status, uint32_t event)
{
	return (struct outcome){status, true, event};
}

enum { GRH_BYTES = 40, BTH_DETH_BYTES = 20, NEXT_HEADER_IBA = 0x1b };

/* The global routing header, which a datagram's first 40 bytes are. */
static void header(struct soft_qp *q, const struct soft_wqe *w, struct soft_segments *to)
{
	uint32_t first = htobe32(6U << 28 | w->to.grh.traffic_class << 20 | (w->to.grh.flow_label & 0xfffff));
	uint16_t length = htobe16(BTH_DETH_BYTES + w->length);
	union ibv_gid own;
	uint8_t grh[GRH_BYTES];
	verbs_gid(q->qp.context->device, &own);
	memcpy(grh, &first, sizeof(first));
	memcpy(grh + 4, &length, sizeof(length));
	grh[6] = NEXT_HEADER_IBA;
	grh[7] = w->to.grh.hop_limit;
	memcpy(grh + 8, own.raw, sizeof(own.raw));
	memcpy(grh + 24, w->to.grh.dgid.raw, sizeof(w->to.grh.dgid.raw));
	struct soft_segments from = {.n = 1, .of = {{grh, sizeof(grh)}}};
	verbs_segments_copy(to, &from, 0);
}

/* Receives message s at p. */
static struct outcome receive(struct soft_qp *q, struct soft_wqe *w, struct soft_qp *p, const struct soft_segments *s)
{
	struct soft_segments to;
	bool ud = p->qp.qp_type == IBV_QPT_UD;
	struct soft_received r = {
		.opcode = IBV_WC_RECV,
		.length = s->length + (ud ? GRH_BYTES : 0),
		.with_imm = w->opcode == IBV_WR_SEND_WITH_IMM,
		.imm = w->opcode == IBV_WR_SEND_WITH_IMM ? w->imm : 0,
		.src_qp = ud ? q->qp.qp_num : 0,
		.grh = ud,
		.solicited = w->flags & IBV_SEND_SOLICITED,
	};
	if (!verbs_gather(p, &p->rq, p->rq.next, IBV_ACCESS_LOCAL_WRITE, &to))
		r.status = IBV_WC_LOC_PROT_ERR;
	else if (to.length < r.length)
		r.status = IBV_WC_LOC_LEN_ERR;
	if (!r.status) {
		if (ud)
			header(q, w, &to);
		verbs_segments_copy(&to, s, ud ? GRH_BYTES : 0);
		verbs_complete_recv(p, &r);
		return (struct outcome){0};
	}
	verbs_complete_recv(p, &(struct soft_received){.status = r.status});
	return refuse(r.status == IBV_WC_LOC_LEN_ERR ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR, 0);
}

/* The memory at p that its peer means, if it may do this there. */
static struct outcome remote(struct soft_wqe *w, struct soft_qp *p, unsigned access, struct soft_segments *s)
{
	void *at = NULL;
	if (!(p->attr.qp_access_flags & access) || (access == IBV_ACCESS_REMOTE_READ && !p->attr.max_dest_rd_atomic))
		return refuse(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
	if (w->length && !(at = verbs_memory(p->qp.pd, w->rkey, true, w->remote_addr, w->length, access)))
		return refuse(IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
	*s = (struct soft_segments){0};
	verbs_segments_add(s, at, w->length);
	return (struct outcome){0};
}

static struct outcome write_to(struct soft_wqe *w, struct soft_qp *p, const struct soft_segments *s)
{
	struct soft_segments to;
	struct outcome o = remote(w, p, IBV_ACCESS_REMOTE_WRITE, &to);
	if (o.status)
		return o;
	verbs_segments_copy(&to, s, 0);
	verbs_count_op(p, IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE, true);
	if (w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		verbs_complete_recv(p, &(struct soft_received){.opcode = IBV_WC_RECV_RDMA_WITH_IMM,
							       .length = w->length,
							       .with_imm = true,
							       .imm = w->imm,
							       .solicited = w->flags & IBV_SEND_SOLICITED});
	return o;
}

static struct outcome read_from(struct soft_wqe *w, struct soft_qp *p, struct soft_segments *s)
{
	struct soft_segments from;
	struct outcome o = remote(w, p, IBV_ACCESS_REMOTE_READ, &from);
	if (o.status)
		return o;
	verbs_segments_copy(s, &from, 0);
	verbs_count_op(p, IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ, true);
	return o;
}

static bool writes(const struct soft_wqe *w)
{
	return w->opcode == IBV_WR_RDMA_WRITE || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool receives(const struct soft_wqe *w)
{
	return w->opcode == IBV_WR_SEND || w->opcode == IBV_WR_SEND_WITH_IMM || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* The time-out of one try, of ibv_modify_qp(3): 4.096 us << timeout, 0 is for ever. */
static uint64_t answer_time(struct soft_qp *q)
{
	return q->attr.timeout ? (UINT64_C(4096) << q->attr.timeout) * (q->attr.retry_cnt + 1) : SOFT_NEVER;
}

/* How long a receiver that is not ready is asked again: its timer, each time. */
static uint64_t rnr_time(struct soft_qp *q, struct soft_qp *p)
{
	static const uint32_t us[32] = {655360, 10,    20,    30,    40,    60,	  80,	 120,	160,   240,   320,
					480,	640,   960,   1280,  1920,  2560,  3840,	 5120,	7680,  10240, 15360,
					20480,	30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520};
	return q->attr.rnr_retry == 7 ? SOFT_NEVER : (uint64_t)us[p->attr.min_rnr_timer] * 1000 * q->attr.rnr_retry;
}

/* The request at the head stays there until its time is over, then it has that status. */
static bool stall(struct soft_qp *q, struct soft_wqe *w, enum soft_stall why, uint64_t time, struct outcome *o)
{
	uint64_t now = verbs_now();
	if (w->stall != why) {
		w->stall = why;
		w->until = time == SOFT_NEVER ? SOFT_NEVER : now + time;
	}
	if (now < w->until) {
		verbs_wake(q, w->until);
		return true;
	}
	o->status = why == SOFT_NOT_READY ? IBV_WC_RNR_RETRY_EXC_ERR : IBV_WC_RETRY_EXC_ERR;
	return false;
}

/* Of RC: true when the request stays. */
static bool reliable(struct soft_qp *q, struct soft_wqe *w, struct soft_qp *p, struct outcome *o)
{
	struct soft_segments s;
	bool reads = w->opcode == IBV_WR_RDMA_READ;
	if (!verbs_gather(q, &q->sq, q->sq.next, reads ? IBV_ACCESS_LOCAL_WRITE : 0, &s)) {
		o->status = IBV_WC_LOC_PROT_ERR;
		return false;
	}
	if (reads && !q->attr.max_rd_atomic) {
		o->status = IBV_WC_LOC_QP_OP_ERR;
		return false;
	}
	if (!p || p->rq_psn != q->sq_psn)
		return stall(q, w, SOFT_NO_ANSWER, answer_time(q), o);
	if (receives(w) && p->rq.next == p->rq.head)
		return stall(q, w, SOFT_NOT_READY, rnr_time(q, p), o);
	q->sq_psn = p->rq_psn = (q->sq_psn + packets(q, w->length)) & 0xffffff;
	*o = reads ? read_from(w, p, &s) : writes(w) ? write_to(w, p, &s) : receive(q, w, p, &s);
	return false;
}

/* UC and UD: no peer replies, so for the sender every message has arrived. A failing receive is
 * reported to the receiver only. */
static void unreliable(struct soft_qp *q, struct soft_wqe *w, struct soft_qp *p, struct outcome *o)
{
	struct soft_segments s;
	bool ud = q->qp.qp_type == IBV_QPT_UD;
	/* A Q_Key with the highest bit set stands for the queue pair's own. */
	uint32_t qkey = w->remote_qkey & 0x80000000 ? q->attr.qkey : w->remote_qkey;
	if (ud && w->foreign_ah)
		o->status = IBV_WC_LOC_QP_OP_ERR;
	else if (ud && w->length > verbs_mtu(q->qp.context))
		o->status = IBV_WC_LOC_LEN_ERR;
	else if (!verbs_gather(q, &q->sq, q->sq.next, 0, &s))
		o->status = IBV_WC_LOC_PROT_ERR;
	else if (!p || (ud && qkey != p->attr.qkey) || (receives(w) && p->rq.next == p->rq.head))
		return;
	else if (writes(w))
		write_to(w, p, &s);
	else
		o->fatal = receive(q, w, p, &s).fatal;
}

/* Does the request at the head, if its time has come; false: it stays there. */
static bool step(struct soft_qp *q)
{
	uint64_t n = q->sq.next;
	struct soft_wqe *w = verbs_wqe(&q->sq, n);
	struct soft_qp *p = q->qp.qp_type == IBV_QPT_UD ? find(&w->to.grh.dgid, w->remote_qpn, IBV_QPT_UD) : peer(q);
	struct outcome o = {0};
	if (w->ready && verbs_now() < w->ready) {
		verbs_wake(q, w->ready);
		return false;
	}
	if (q->qp.qp_type != IBV_QPT_RC)
		unreliable(q, w, p, &o);
	else if (reliable(q, w, p, &o))
		return false;
	if (q->sq.next == n) /* else its own receives overran a queue, and all was flushed */
		verbs_complete_send(q, o.status);
	if (o.status)
		verbs_fail(q, q->qp.qp_type == IBV_QPT_RC ? IBV_QPS_ERR : IBV_QPS_SQE);
	if (o.fatal)
		verbs_fail(p, IBV_QPS_ERR);
	if (o.event)
		verbs_object_event(p->qp.context, o.event, &p->qp, p->qp.handle);
	return true;
}

void verbs_run(struct soft_qp *q)
{
	q->wake = SOFT_NEVER;
	while (q->state == IBV_QPS_RTS && !q->gone && q->sq.next < q->sq.head && step(q))
		;
}

void verbs_run_peer(struct soft_qp *q)
{
	struct soft_qp *p = q->qp.qp_type == IBV_QPT_RC && !q->gone ? peer(q) : NULL;
	if (p)
		verbs_run(p);
}
