/* SPDX-License-Identifier: Apache-2.0
 *
 * rdma_run.c: the send queue at work: requests are executed in order, by the rules of their
 * transport, and each ends with a status. A reliable one waits for its peer, with the time-outs
 * of ibv_modify_qp(3). On the other transports a message without a receiver is lost and counts as
 * sent.
 *
 * Errors reach both ends as in ibv_poll_cq(3) and the InfiniBand specification (9.9): the
 * requester by its status, the responder by the completion of its receive, or by an event if it
 * has no receive. */
#include <endian.h>
#include <string.h>

#include "rdma_qp.h"

static uint32_t packets(struct rdma_qp *q, uint64_t length)
{
	uint64_t mtu = UINT64_C(128) << q->attr.path_mtu, n = (length + mtu - 1) / mtu;
	return n ? n : 1;
}

/* Returns the queue pair at a GID and QP number. */
static struct rdma_qp *find(const union ibv_gid *gid, uint32_t number, uint32_t type)
{
	struct rdma_link *qps = rdma_wire_qps();
	for (struct rdma_link *l = qps->next; l != qps; l = l->next) {
		struct rdma_qp *p = RDMA_OUTER(l, struct rdma_qp, wire);
		if (p->number != number || p->type != type || p->gone)
			continue;
		bool receives = p->state != IBV_QPS_RESET && p->state != IBV_QPS_INIT && p->state != IBV_QPS_ERR;
		return receives && !memcmp(&p->gid, gid, sizeof(*gid)) ? p : NULL;
	}
	return NULL;
}

/* The queue pair that q is connected to, if it is connected to q in turn. */
static struct rdma_qp *peer(struct rdma_qp *q)
{
	struct rdma_qp *p = find(&q->attr.ah_attr.grh.dgid, q->attr.dest_qp_num, q->type);
	if (!p || p->attr.dest_qp_num != q->number || memcmp(&p->attr.ah_attr.grh.dgid, &q->gid, sizeof(q->gid)))
		return NULL;
	return p;
}

/* How a request ended: its status, and whether the responder's queue pair did with it. It
 * does after the request has completed: it may be the same one. */
struct outcome {
	uint32_t status;
	bool fatal;     /* for the responder */
	uint32_t event; /* that tells it; 0: a completion has */
	/* Of a read: the bytes that go to the completion. */
	uint32_t scattered;
	uint8_t data[RDMA_MAX_SCATTER];
};

static struct outcome refuse(uint32_t status, uint32_t event)
{
	return (struct outcome){.status = status, .fatal = true, .event = event};
}

enum { GRH_BYTES = 40, BTH_DETH_BYTES = 20, NEXT_HEADER_IBA = 0x1b };

/* The global routing header, which a datagram's first 40 bytes are. */
static void header(struct rdma_qp *q, const struct rdma_wqe *w, struct rdma_segments *to)
{
	uint32_t first = htobe32(6U << 28 | w->to.grh.traffic_class << 20 | (w->to.grh.flow_label & 0xfffff));
	uint16_t length = htobe16(BTH_DETH_BYTES + w->length);
	uint8_t grh[GRH_BYTES];
	memcpy(grh, &first, sizeof(first));
	memcpy(grh + 4, &length, sizeof(length));
	grh[6] = NEXT_HEADER_IBA;
	grh[7] = w->to.grh.hop_limit;
	memcpy(grh + 8, q->gid.raw, sizeof(q->gid.raw));
	memcpy(grh + 24, w->to.grh.dgid.raw, sizeof(w->to.grh.dgid.raw));
	struct rdma_segments from = {.n = 1, .of = {{NULL, grh, sizeof(grh)}}};
	rdma_segments_copy(to, &from, 0);
}

/* Copies a message into the entry of its completion. */
static void scatter(const struct rdma_segments *s, uint8_t *data, uint32_t *scattered)
{
	struct rdma_segments to = {.n = 1, .of = {{NULL, data, s->length}}};
	rdma_segments_copy(&to, s, 0);
	*scattered = s->length;
}

/* Receives message s at p. */
static struct outcome receive(struct rdma_qp *q, struct rdma_wqe *w, struct rdma_qp *p, const struct rdma_segments *s)
{
	struct rdma_segments to;
	bool ud = p->type == IBV_QPT_UD;
	struct rdma_ended r = {
		.opcode = IBV_WC_RECV,
		.length = s->length + (ud ? GRH_BYTES : 0),
		.with_imm = w->opcode == IBV_WR_SEND_WITH_IMM,
		.imm = w->opcode == IBV_WR_SEND_WITH_IMM ? w->imm : 0,
		.src_qp = ud ? q->number : 0,
		.grh = ud,
		.solicited = w->flags & IBV_SEND_SOLICITED,
	};
	if (!rdma_gather(p, &p->rq, p->rq.next, IBV_ACCESS_LOCAL_WRITE, &to))
		r.status = IBV_WC_LOC_PROT_ERR;
	else if (to.length < r.length)
		r.status = IBV_WC_LOC_LEN_ERR;
	if (!r.status) {
		if (ud)
			header(q, w, &to);
		if (s->length <= p->scatter_receive && !ud)
			scatter(s, r.data, &r.scattered);
		else
			rdma_segments_copy(&to, s, ud ? GRH_BYTES : 0);
		rdma_complete_recv(p, &r);
		return (struct outcome){0};
	}
	rdma_complete_recv(p, &(struct rdma_ended){.status = r.status});
	return refuse(r.status == IBV_WC_LOC_LEN_ERR ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR, 0);
}

/* The memory at p that its peer means, if it may do this there. */
static struct outcome remote(struct rdma_wqe *w, struct rdma_qp *p, unsigned access, struct rdma_segments *s)
{
	struct rdma_mr *m = NULL;
	if (!(p->attr.qp_access_flags & access) || (access == IBV_ACCESS_REMOTE_READ && !p->attr.max_dest_rd_atomic))
		return refuse(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
	if (w->length && !(m = rdma_memory(p->pd, w->rkey, true, w->remote_addr, w->length, access)))
		return refuse(IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
	*s = (struct rdma_segments){0};
	if (m)
		rdma_segments_add(s, m->task, (void *)(uintptr_t)(m->addr + (w->remote_addr - m->iova)), w->length);
	return (struct outcome){0};
}

static struct outcome write_to(struct rdma_wqe *w, struct rdma_qp *p, const struct rdma_segments *s)
{
	struct rdma_segments to;
	struct outcome o = remote(w, p, IBV_ACCESS_REMOTE_WRITE, &to);
	if (o.status)
		return o;
	rdma_segments_copy(&to, s, 0);
	rdma_count(p, IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE, true);
	if (w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		rdma_complete_recv(p, &(struct rdma_ended){.opcode = IBV_WC_RECV_RDMA_WITH_IMM,
							       .length = w->length,
							       .with_imm = true,
							       .imm = w->imm,
							       .solicited = w->flags & IBV_SEND_SOLICITED});
	return o;
}

static struct outcome read_from(struct rdma_qp *q, struct rdma_wqe *w, struct rdma_qp *p, struct rdma_segments *s)
{
	struct rdma_segments from;
	struct outcome o = remote(w, p, IBV_ACCESS_REMOTE_READ, &from);
	if (o.status)
		return o;
	if (w->length <= q->scatter_read)
		scatter(&from, o.data, &o.scattered);
	else
		rdma_segments_copy(s, &from, 0);
	rdma_count(p, IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ, true);
	return o;
}

static bool writes(const struct rdma_wqe *w)
{
	return w->opcode == IBV_WR_RDMA_WRITE || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool receives(const struct rdma_wqe *w)
{
	return w->opcode == IBV_WR_SEND || w->opcode == IBV_WR_SEND_WITH_IMM || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* Has it a posted receive? */
static bool ready(struct rdma_qp *p)
{
	if (p->rq.next == p->rq.head && p->ops->fetch)
		p->ops->fetch(p);
	return p->rq.next != p->rq.head;
}

/* The time-out of one try, of ibv_modify_qp(3): 4.096 us << timeout, 0 is for ever. */
static uint64_t answer_time(struct rdma_qp *q)
{
	return q->attr.timeout ? (UINT64_C(4096) << q->attr.timeout) * (q->attr.retry_cnt + 1) : RDMA_NEVER;
}

/* How long a receiver that is not ready is asked again: its timer, each time. */
static uint64_t rnr_time(struct rdma_qp *q, struct rdma_qp *p)
{
	static const uint32_t us[32] = {655360, 10,    20,    30,    40,    60,	  80,	 120,	160,   240,   320,
					480,	640,   960,   1280,  1920,  2560,  3840,	 5120,	7680,  10240, 15360,
					20480,	30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520};
	return q->attr.rnr_retry == 7 ? RDMA_NEVER : (uint64_t)us[p->attr.min_rnr_timer] * 1000 * q->attr.rnr_retry;
}

/* The request at the head stays there until its time is over, then it has that status. */
static bool stall(struct rdma_qp *q, struct rdma_wqe *w, enum rdma_stall why, uint64_t time, struct outcome *o)
{
	uint64_t now = rdma_now();
	if (w->stall != why) {
		w->stall = why;
		w->until = time == RDMA_NEVER ? RDMA_NEVER : now + time;
	}
	if (now < w->until) {
		rdma_wake(q, w->until);
		return true;
	}
	o->status = why == RDMA_NOT_READY ? IBV_WC_RNR_RETRY_EXC_ERR : IBV_WC_RETRY_EXC_ERR;
	return false;
}

/* Of RC: true when the request stays. */
static bool reliable(struct rdma_qp *q, struct rdma_wqe *w, struct rdma_qp *p, struct outcome *o)
{
	struct rdma_segments s;
	bool reads = w->opcode == IBV_WR_RDMA_READ;
	if (w->fault) {
		o->status = w->fault;
		return false;
	}
	if (!rdma_gather(q, &q->sq, q->sq.next, reads ? IBV_ACCESS_LOCAL_WRITE : 0, &s)) {
		o->status = IBV_WC_LOC_PROT_ERR;
		return false;
	}
	if (reads && !q->attr.max_rd_atomic) {
		o->status = IBV_WC_LOC_QP_OP_ERR;
		return false;
	}
	if (!p || p->rq_psn != q->sq_psn)
		return stall(q, w, RDMA_NO_ANSWER, answer_time(q), o);
	if (receives(w) && !ready(p))
		return stall(q, w, RDMA_NOT_READY, rnr_time(q, p), o);
	q->sq_psn = p->rq_psn = (q->sq_psn + packets(q, w->length)) & 0xffffff;
	*o = reads ? read_from(q, w, p, &s) : writes(w) ? write_to(w, p, &s) : receive(q, w, p, &s);
	return false;
}

/* UC, UD and RAW_PACKET: no peer replies, so for the sender every message has arrived. A failing receive is
 * reported to the receiver only. */
static void unreliable(struct rdma_qp *q, struct rdma_wqe *w, struct rdma_qp *p, struct outcome *o)
{
	struct rdma_segments s;
	bool ud = q->type == IBV_QPT_UD;
	/* A Q_Key with the highest bit set stands for the queue pair's own. */
	uint32_t qkey = w->remote_qkey & 0x80000000 ? q->attr.qkey : w->remote_qkey;
	if (w->fault)
		o->status = w->fault;
	else if (ud && w->length > q->ops->mtu(q))
		o->status = IBV_WC_LOC_LEN_ERR;
	else if (!rdma_gather(q, &q->sq, q->sq.next, 0, &s))
		o->status = IBV_WC_LOC_PROT_ERR;
	else if (q->type == IBV_QPT_RAW_PACKET)
		q->ops->transmit(q, &s);
	else if (!p || (ud && qkey != p->attr.qkey) || (receives(w) && !ready(p)))
		return;
	else if (writes(w))
		write_to(w, p, &s);
	else
		o->fatal = receive(q, w, p, &s).fatal;
}

/* Does the request at the head, if its time has come; false: it stays there. */
static bool step(struct rdma_qp *q)
{
	uint64_t n = q->sq.next;
	struct rdma_wqe *w = rdma_wqe(&q->sq, n);
	struct rdma_qp *p = NULL;
	if (q->type == IBV_QPT_UD)
		p = find(&w->to.grh.dgid, w->remote_qpn, IBV_QPT_UD);
	else if (q->type != IBV_QPT_RAW_PACKET)
		p = peer(q);
	struct outcome o = {0};
	if (w->ready && rdma_now() < w->ready) {
		rdma_wake(q, w->ready);
		return false;
	}
	if (q->type != IBV_QPT_RC)
		unreliable(q, w, p, &o);
	else if (reliable(q, w, p, &o))
		return false;
	if (q->sq.next == n) /* else its own receives overran a queue, and all was flushed */
		{
		struct rdma_ended end = {.status = o.status, .scattered = o.scattered};
		memcpy(end.data, o.data, o.scattered);
		rdma_complete_send(q, &end);
	}
	if (o.status)
		rdma_fail(q, q->type == IBV_QPT_RC ? IBV_QPS_ERR : IBV_QPS_SQE);
	if (o.fatal)
		rdma_fail(p, IBV_QPS_ERR);
	if (o.event)
		p->ops->event(p, o.event);
	return true;
}

void rdma_run(struct rdma_qp *q)
{
	q->wake = RDMA_NEVER;
	while (q->state == IBV_QPS_RTS && !q->gone && q->sq.next < q->sq.head && step(q))
		;
}

void rdma_receive_frame(struct rdma_qp *q, const uint8_t *frame, uint32_t length)
{
	struct rdma_segments to, from = {.n = 1, .length = length, .of = {{NULL, (uint8_t *)frame, length}}};
	struct rdma_ended end = {.opcode = IBV_WC_RECV, .length = length};
	if (q->gone || q->state < IBV_QPS_RTR || q->state == IBV_QPS_ERR || !ready(q))
		return;
	if (!rdma_gather(q, &q->rq, q->rq.next, IBV_ACCESS_LOCAL_WRITE, &to))
		end.status = IBV_WC_LOC_PROT_ERR;
	else if (to.length < length)
		end.status = IBV_WC_LOC_LEN_ERR;
	else
		rdma_segments_copy(&to, &from, 0);
	rdma_complete_recv(q, &end);
	if (end.status)
		rdma_fail(q, IBV_QPS_ERR);
}

void rdma_run_peer(struct rdma_qp *q)
{
	struct rdma_qp *p = q->type == IBV_QPT_RC && !q->gone ? peer(q) : NULL;
	if (p)
		rdma_run(p);
}
