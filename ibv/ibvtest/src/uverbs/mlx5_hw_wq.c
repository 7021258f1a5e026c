/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_hw_wq.c: the work queues: requests are fetched from the memory of the caller into the card's queues, as
 * many as these hold. A send is a list of segments of 16 bytes in blocks of 64 (struct mlx5_wqe_ctrl_seg and
 * those behind it, <infiniband/mlx5dv.h>), a receive a list of pointers. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "../verbs_soft.h"
#include "mlx5_hw.h"

enum {
	FETCH = 64, /* requests */
	BLOCK = 64,
	SEGMENT = 16,
	MAX_WQE = 1024,
	AV = 48,

	RCV_DBR = 0, /* the words of the doorbell record */
	SND_DBR = 4,

	CE_UPDATE = 2 << 2, /* the flags of the control segment */
	SOLICITED = 1 << 1,
	INLINE = 1 << 31,
	INVALID_LKEY = 0x100, /* ends the list of a receive */
};

static uint16_t get16(const uint8_t *p)
{
	return p[0] << 8 | p[1];
}

static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)get16(p) << 16 | get16(p + 2);
}

static uint64_t get64(const uint8_t *p)
{
	return (uint64_t)get32(p) << 32 | get32(p + 4);
}

static struct mlx5_ib_qp *of(struct rdma_qp *q)
{
	return RDMA_OUTER(q, struct mlx5_ib_qp, card);
}

static uint16_t doorbell(const struct mlx5_ib_qp *q, unsigned at, uint16_t otherwise)
{
	uint32_t word;
	return uv_copy_from_user(q->ibqp.object.task, &word, q->db + at, sizeof(word)) ? otherwise : be32toh(word);
}

int mlx5_hw_qp_start(struct mlx5_ib_qp *q)
{
	int err = rdma_queue_make(&q->card.sq, FETCH, MAX_WQE / SEGMENT, MAX_WQE, 0);
	if (!err)
		err = rdma_queue_make(&q->card.rq, FETCH, MAX_WQE / SEGMENT, 0, 0);
	if (err)
		rdma_queue_free(&q->card.sq);
	else
		rdma_link_append(rdma_wire_qps(), &q->card.wire);
	return err;
}

void mlx5_hw_qp_stop(struct mlx5_ib_qp *q)
{
	rdma_link_remove(&q->card.wire);
	rdma_queue_free(&q->card.sq);
	rdma_queue_free(&q->card.rq);
}

void mlx5_hw_qp_reset(struct mlx5_ib_qp *q)
{
	q->sq_ci = q->rq_ci = 0;
}

/* Takes the next slot of the card's queue. Requests that ended are free at once: NULL when it is full. */
static struct rdma_wqe *take(struct rdma_queue *queue)
{
	queue->tail = queue->next;
	return rdma_queue_take(queue, 0);
}

/* Adds a pointer to memory. A length of 0 is 2 GB to the card, and libmlx5 does not write it. */
static void add(struct rdma_queue *queue, struct rdma_wqe *w, const uint8_t *seg)
{
	struct ibv_sge *s = rdma_wqe_sge(queue, queue->head) + w->sges++;
	s->length = get32(seg);
	s->lkey = get32(seg + 4);
	s->addr = get64(seg + 8);
	w->length += s->length;
}

/* The address vector of a datagram: struct mlx5_wqe_av. */
static void parse_av(const struct rdma_qp *q, const uint8_t *av, struct rdma_wqe *w)
{
	w->remote_qkey = get32(av);
	w->remote_qpn = get32(av + 8) & 0xffffff;
	w->to.is_global = 1;
	w->to.port_num = q->attr.port_num;
	w->to.grh.traffic_class = av[26];
	w->to.grh.hop_limit = av[27];
	w->to.grh.flow_label = get32(av + 28) & 0xfffff;
	memcpy(w->to.grh.dgid.raw, av + 32, 16);
}

/* The opcode of the request and the bytes of its segments before the data; false: the card does not serve it. */
static bool parse_opcode(const struct rdma_qp *q, const uint8_t *wqe, struct rdma_wqe *w, uint32_t *data)
{
	static const struct {
		uint8_t code, opcode;
		bool remote;
	} codes[] = {
		{RDMA_OP_SEND, IBV_WR_SEND, false},
		{RDMA_OP_SEND_IMM, IBV_WR_SEND_WITH_IMM, false},
		{RDMA_OP_RDMA_WRITE, IBV_WR_RDMA_WRITE, true},
		{RDMA_OP_RDMA_WRITE_IMM, IBV_WR_RDMA_WRITE_WITH_IMM, true},
		{RDMA_OP_RDMA_READ, IBV_WR_RDMA_READ, true},
	};
	bool ud = q->type == IBV_QPT_UD;
	w->opcode = IBV_WR_SEND;
	if (q->type == IBV_QPT_RAW_PACKET) {
		*data = 2 * SEGMENT; /* behind struct mlx5_wqe_eth_seg */
		return wqe[3] == RDMA_OP_SEND;
	}
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		if (codes[i].code != wqe[3])
			continue;
		w->opcode = codes[i].opcode;
		if ((ud && codes[i].remote) || (q->type == IBV_QPT_UC && w->opcode == IBV_WR_RDMA_READ))
			return false;
		*data = SEGMENT + (ud ? AV : codes[i].remote ? SEGMENT : 0);
		return true;
	}
	return false;
}

/* Reads one request. */
static void parse(struct mlx5_ib_qp *q, const uint8_t *wqe, uint32_t size, struct rdma_wqe *w)
{
	struct rdma_queue *queue = &q->card.sq;
	uint32_t at = SEGMENT;
	if (get32(wqe + 4) >> 8 != q->card.number || get16(wqe + 1) != w->counter || !parse_opcode(&q->card, wqe, w, &at) ||
	    at > size) {
		w->fault = IBV_WC_LOC_QP_OP_ERR;
		return;
	}
	w->flags = (wqe[11] & CE_UPDATE ? IBV_SEND_SIGNALED : 0) | (wqe[11] & SOLICITED ? IBV_SEND_SOLICITED : 0);
	memcpy(&w->imm, wqe + 12, sizeof(w->imm));
	if (q->card.type == IBV_QPT_RAW_PACKET) {
		if (get16(wqe + SEGMENT + 12)) /* inlined headers, which the device does not ask for (eth_min_inline) */
			w->fault = IBV_WC_LOC_QP_OP_ERR;
	} else if (q->card.type == IBV_QPT_UD) {
		parse_av(&q->card, wqe + SEGMENT, w);
	} else if (at > SEGMENT) {
		w->remote_addr = get64(wqe + SEGMENT);
		w->rkey = get32(wqe + SEGMENT + 8);
	}
	while (at + SEGMENT <= size) {
		uint32_t inlined = get32(wqe + at) & ~(uint32_t)INLINE;
		if (!(get32(wqe + at) & (uint32_t)INLINE)) {
			add(queue, w, wqe + at);
			at += SEGMENT;
			continue;
		}
		if (w->sges || inlined > size - at - 4) {
			w->fault = IBV_WC_LOC_QP_OP_ERR;
			break;
		}
		memcpy(rdma_wqe_data(queue, queue->head) + w->length, wqe + at + 4, inlined);
		w->length += inlined;
		w->flags |= IBV_SEND_INLINE;
		at += (4 + inlined + SEGMENT - 1) / SEGMENT * SEGMENT;
	}
}

/* Copies from the ring of the send queue, which goes on at its beginning. */
static int read_ring(const struct mlx5_ib_qp *q, uint32_t block, uint8_t *to, uint32_t size)
{
	uint32_t at = (block & (q->sq_count - 1)) * BLOCK, room = q->sq_count * BLOCK - at;
	uint32_t some = size < room ? size : room;
	int err = uv_copy_from_user(q->ibqp.object.task, to, q->sq + at, some);
	return err ? err : uv_copy_from_user(q->ibqp.object.task, to + some, q->sq, size - some);
}

bool mlx5_hw_fetch_sends(struct mlx5_ib_qp *q)
{
	uint16_t pi = doorbell(q, SND_DBR, q->sq_ci);
	uint8_t wqe[MAX_WQE];
	struct rdma_wqe *w;
	bool some = false;
	if (q->sq_ci == pi)
		return false;
	uint64_t delay = verbs_delay(q->ibqp.object.device->name, "WQE");
	while (q->sq_count && q->sq_ci != pi && (w = take(&q->card.sq))) {
		uint32_t size = SEGMENT;
		w->counter = q->sq_ci;
		if (read_ring(q, q->sq_ci, wqe, SEGMENT) || !(size = (wqe[7] & 0x3f) * SEGMENT) ||
		    read_ring(q, q->sq_ci, wqe, size))
			w->fault = IBV_WC_LOC_QP_OP_ERR;
		else
			parse(q, wqe, size, w);
		w->ready = delay ? rdma_now() + delay : 0;
		q->sq_ci += size ? (size + BLOCK - 1) / BLOCK : 1;
		q->card.sq.head++;
		some = true;
	}
	return some;
}

void mlx5_hw_fetch_receives(struct rdma_qp *card)
{
	struct mlx5_ib_qp *q = of(card);
	uint16_t pi = doorbell(q, RCV_DBR, q->rq_ci);
	uint8_t wqe[MAX_WQE];
	struct rdma_wqe *w;
	while (q->rq_count && q->rq_ci != pi && (w = take(&card->rq))) {
		uint32_t size = 1U << q->rq_shift;
		uint64_t from = q->rq + ((uint64_t)(q->rq_ci & (q->rq_count - 1)) << q->rq_shift);
		w->counter = q->rq_ci++;
		if (uv_copy_from_user(q->ibqp.object.task, wqe, from, size))
			size = 0;
		for (uint32_t at = 0; at < size && get32(wqe + at + 4) != INVALID_LKEY; at += SEGMENT)
			add(&card->rq, w, wqe + at);
		card->rq.head++;
	}
}
