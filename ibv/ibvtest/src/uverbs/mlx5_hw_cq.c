/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_hw_cq.c: the rings of completion queue entries. An entry of 64 bytes, or the second half of one of
 * 128, is struct mlx5_cqe64.
 *
 * With compression, consecutive entries that differ in a few fields become a block: a title, the first
 * entry with the number of all in its byte_cnt, and arrays of eight mini-CQEs, in the slot behind the title and in
 * each eighth slot from the title on. A block of n entries takes n slots; the others keep their old content. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "mlx5_hw.h"

enum {
	SET_CI = 0, /* the words of the doorbell record */
	ARM = 4,
	NOT_ARMED = 0xffffffff,
	REQ_NOT_SOL = 1 << 24,
	COMPRESSED = 3 << 2,
	BYTE_CNT = 0x2c,
	MINIS = 8,
	LAST_WORD = RDMA_CQE_BYTES - sizeof(uint32_t),
};

static struct rdma_link cqs = {&cqs, &cqs};

static void put32(uint8_t *to, uint32_t value)
{
	value = htobe32(value);
	memcpy(to, &value, sizeof(value));
}

static uint32_t get_word(const struct mlx5_ib_cq *c, unsigned at)
{
	uint32_t word = 0;
	(void)uv_copy_from_user(c->ibcq.object.task, &word, c->db + at, sizeof(word));
	return be32toh(word);
}

/* A request for an event is a store of a word that may be the word that was there: 0 is the first one. The card
 * therefore marks the word, which libmlx5 does not read. */
int mlx5_hw_cq_start(struct mlx5_ib_cq *c)
{
	const uint32_t not_armed = NOT_ARMED;
	int err = uv_copy_to_user(c->ibcq.object.task, c->db + ARM, &not_armed, sizeof(not_armed));
	if (!err)
		rdma_link_append(&cqs, &c->link);
	return err;
}

void mlx5_hw_cq_stop(struct mlx5_ib_cq *c)
{
	rdma_link_remove(&c->link);
}

static uint64_t slot(const struct mlx5_ib_cq *c, uint32_t i)
{
	uint64_t n = c->collapsed ? 0 : i & ((1U << c->log) - 1);
	return c->buf + n * c->cqe_size + c->cqe_size - RDMA_CQE_BYTES;
}

/* The word with the owner bit comes last: a reader that sees it sees the rest. The word has the counter, too, so that an
 * entry that overwrites another one never shows the counter of one beside the opcode of the other. */
static void put(const struct mlx5_ib_cq *c, uint32_t i, const uint8_t e[RDMA_CQE_BYTES])
{
	const struct uv_task *task = c->ibcq.object.task;
	if (!uv_copy_to_user(task, slot(c, i), e, LAST_WORD))
		(void)uv_copy_to_user(task, slot(c, i) + LAST_WORD, e + LAST_WORD, sizeof(uint32_t));
}

static uint8_t owner(const struct mlx5_ib_cq *c, uint32_t i)
{
	return i >> c->log & 1;
}

static void put_entry(const struct mlx5_ib_cq *c, uint32_t i, const struct rdma_cqe *from)
{
	uint8_t e[RDMA_CQE_BYTES];
	rdma_cqe_encode(from, owner(c, i), e);
	if (from->scattered > 32)
		(void)uv_copy_to_user(c->ibcq.object.task, slot(c, i) - RDMA_CQE_BYTES, from->data, from->scattered);
	put(c, i, e);
}

/* The half of a mini-CQE before the byte count: of a requester the request, of a responder RSS hash or checksum, which
 * messages do not have. */
static void put_mini(const struct mlx5_ib_cq *c, const struct rdma_cqe *e, uint8_t *to)
{
	memset(to, 0, 4);
	if (e->opcode == RDMA_CQE_REQ) {
		to[0] = e->counter >> 8;
		to[1] = e->counter;
		to[2] = e->wqe_opcode;
	} else if (c->mini == MLX5_HW_MINI_CSUM_STRIDX) {
		to[2] = e->counter >> 8;
		to[3] = e->counter;
	}
	put32(to + 4, e->length);
}

/* Writes the block to the ring: the title, by which a reader finds it, comes last. */
static void end_block(struct mlx5_ib_cq *c)
{
	uint32_t n = c->blocked, first = c->pi - n;
	uint8_t title[RDMA_CQE_BYTES];
	c->blocked = 0;
	if (n == 1)
		put_entry(c, first, &c->block[0]);
	if (n < 2)
		return;
	for (uint32_t i = 0; i < n; i += MINIS) {
		uint8_t minis[RDMA_CQE_BYTES] = {0};
		for (uint32_t k = i; k < n && k < i + MINIS; k++)
			put_mini(c, &c->block[k], minis + (k - i) * 8);
		(void)uv_copy_to_user(c->ibcq.object.task, slot(c, i ? first + i : first + 1), minis, sizeof(minis));
	}
	rdma_cqe_encode(&c->block[0], owner(c, first), title);
	put32(title + BYTE_CNT, n);
	title[RDMA_CQE_OP_OWN] |= COMPRESSED;
	put(c, first, title);
}

static bool compressible(const struct rdma_cqe *e)
{
	return e->opcode < RDMA_CQE_REQ_ERR && !e->scattered;
}

/* Can e be the next of the block? The reader takes the other fields from the title. */
static bool continues(const struct mlx5_ib_cq *c, const struct rdma_cqe *e)
{
	const struct rdma_cqe *t = &c->block[0];
	if (c->blocked == MLX5_HW_BLOCK || c->blocked >= 1U << c->log)
		return false;
	if (e->opcode != t->opcode || e->qpn != t->qpn || e->uidx != t->uidx || e->imm != t->imm || e->src_qp != t->src_qp ||
	    e->grh != t->grh || e->solicited != t->solicited)
		return false;
	return e->opcode == RDMA_CQE_REQ || e->counter == (uint16_t)(t->counter + c->blocked);
}

bool mlx5_hw_cq_push(struct mlx5_ib_cq *c, const struct rdma_cqe *e)
{
	if (c->overrun)
		return true;
	if (!c->ignore_overrun && ((c->pi - c->ci) & 0xffffff) >= 1U << c->log)
		c->ci = get_word(c, SET_CI);
	if (!c->ignore_overrun && ((c->pi - c->ci) & 0xffffff) >= 1U << c->log) {
		c->overrun = true;
		if (!c->devx)
			uv_cq_event(&c->ibcq, IB_EVENT_CQ_ERR);
		return false;
	}
	if (c->blocked && !(compressible(e) && continues(c, e)))
		end_block(c);
	if (c->mini && compressible(e))
		c->block[c->blocked++] = *e;
	else
		put_entry(c, c->pi, e);
	c->pi++;
	if (e->solicited || e->syndrome)
		c->solicited = c->pi;
	return true;
}

/* The reader asks for the event that follows the last one, for entries from an index on. */
static void send_event(struct mlx5_ib_cq *c)
{
	uint32_t arm = get_word(c, ARM), to = arm & REQ_NOT_SOL ? c->solicited : c->pi;
	if (arm == NOT_ARMED || arm >> 28 != (c->events & 3) || (int32_t)((to - arm) << 8) <= 0)
		return;
	c->events++;
	uv_comp_event(&c->ibcq);
}

void mlx5_hw_cq_flush(void)
{
	for (struct rdma_link *l = cqs.next; l != &cqs; l = l->next) {
		struct mlx5_ib_cq *c = RDMA_OUTER(l, struct mlx5_ib_cq, link);
		end_block(c);
		if (c->ibcq.channel)
			send_event(c);
	}
}
