/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_cqe.c: completion queue entries as mlx5 writes them (struct mlx5_cqe64 and
 * mlx5_err_cqe of <infiniband/mlx5dv.h>) and as libmlx5 reads them. */
#include <endian.h>
#include <string.h>

#include "verbs_data.h"

enum {
	FLAGS_RQPN = 0x18,
	IMM = 0x24,
	BYTE_CNT = 0x2c,
	TIMESTAMP = 0x30,
	VENDOR_ERR_SYND = 0x36,
	SYNDROME = 0x37,
	SOP_DROP_QPN = 0x38,
	WQE_COUNTER = 0x3c,
	SIGNATURE = 0x3e,
	OP_OWN = 0x3f,

	INVALID = 15,
	SOLICITED = 1 << 1,
	GRH = 1 << 28,
};

static void put32(uint8_t *to, uint32_t value)
{
	value = htobe32(value);
	memcpy(to, &value, sizeof(value));
}

static uint32_t get32(const uint8_t *from)
{
	uint32_t value;
	memcpy(&value, from, sizeof(value));
	return be32toh(value);
}

static uint8_t *slot(struct soft_cq *c, uint32_t i)
{
	return c->ring + (size_t)(i & ((1U << c->log) - 1)) * SOFT_CQE;
}

static uint8_t owner(struct soft_cq *c, uint32_t i)
{
	return i >> c->log & 1;
}

/* The last word of an entry, in memory order. */
static uint32_t *last(uint8_t *e)
{
	return (uint32_t *)(void *)(e + WQE_COUNTER);
}

void verbs_cqe_init(struct soft_cq *c)
{
	for (uint32_t i = 0; i < 1U << c->log; i++) {
		slot(c, i)[SIGNATURE] = 0xff;
		slot(c, i)[OP_OWN] = INVALID << 4;
	}
}

/* The word with the owner bit comes last, with release order: a reader that sees it sees
 * the rest. */
void verbs_cqe_write(struct soft_cq *c, const struct soft_cqe *from)
{
	uint8_t e[SOFT_CQE] = {0}, *to = slot(c, c->pi);
	uint32_t word;
	put32(e + FLAGS_RQPN, from->src_qp | (from->grh ? GRH : 0));
	memcpy(e + IMM, &from->imm, sizeof(from->imm)); /* big endian since it was posted */
	put32(e + BYTE_CNT, from->length);
	if (from->opcode < SOFT_CQE_REQ_ERR) {
		uint64_t now = htobe64(verbs_now());
		memcpy(e + TIMESTAMP, &now, sizeof(now));
	} else {
		e[VENDOR_ERR_SYND] = from->vendor;
		e[SYNDROME] = from->syndrome;
	}
	put32(e + SOP_DROP_QPN, (uint32_t)from->wqe_opcode << 24 | from->qpn);
	e[WQE_COUNTER] = from->counter >> 8;
	e[WQE_COUNTER + 1] = from->counter;
	e[OP_OWN] = from->opcode << 4 | (from->solicited ? SOLICITED : 0) | owner(c, c->pi);
	memcpy(to, e, WQE_COUNTER);
	memcpy(&word, e + WQE_COUNTER, sizeof(word));
	__atomic_store_n(last(to), word, __ATOMIC_RELEASE);
	c->pi++;
}

/* Takes the next entry; false when the device has not written it. */
bool verbs_cqe_read(struct soft_cq *c, struct soft_cqe *to)
{
	uint8_t *e = slot(c, c->ci), own;
	uint32_t word = __atomic_load_n(last(e), __ATOMIC_ACQUIRE);
	memcpy(&own, (uint8_t *)&word + OP_OWN - WQE_COUNTER, 1);
	if (own >> 4 == INVALID || (own & 1) != owner(c, c->ci))
		return false;
	*to = (struct soft_cqe){
		.opcode = own >> 4,
		.wqe_opcode = e[SOP_DROP_QPN],
		.syndrome = e[SYNDROME],
		.vendor = e[VENDOR_ERR_SYND],
		.solicited = own & SOLICITED,
		.grh = get32(e + FLAGS_RQPN) & GRH,
		.counter = e[WQE_COUNTER] << 8 | e[WQE_COUNTER + 1],
		.qpn = get32(e + SOP_DROP_QPN) & 0xffffff,
		.length = get32(e + BYTE_CNT),
		.src_qp = get32(e + FLAGS_RQPN) & 0xffffff,
	};
	memcpy(&to->imm, e + IMM, sizeof(to->imm));
	c->ci++;
	return true;
}

/* The doorbell record says how far the consumer is. */
void verbs_cqe_consumed(struct soft_cq *c)
{
	__atomic_store_n(c->doorbell, htobe32(c->ci & 0xffffff), __ATOMIC_RELEASE);
}

/* Drops the entries of a queue pair that ends, as libmlx5 does: the remaining entries move up to
 * the producer's end. It is not called for an exposed ring, which its owner may be reading. */
void verbs_cqe_clean(struct soft_cq *c, uint32_t qpn)
{
	uint32_t dropped = 0;
	if (c->direct)
		return;
	for (uint32_t i = c->pi; i-- != c->ci;) {
		uint8_t *e = slot(c, i), *to;
		if ((get32(e + SOP_DROP_QPN) & 0xffffff) == qpn) {
			dropped++;
		} else if (dropped) {
			to = slot(c, i + dropped);
			memcpy(to, e, SOFT_CQE);
			to[OP_OWN] = (to[OP_OWN] & ~1) | owner(c, i + dropped);
		}
	}
	c->ci += dropped;
	verbs_cqe_consumed(c);
}

static const struct {
	uint8_t status, syndrome;
} syndromes[] = {
	{IBV_WC_LOC_LEN_ERR, 0x01},	{IBV_WC_LOC_QP_OP_ERR, 0x02},  {IBV_WC_LOC_PROT_ERR, 0x04},
	{IBV_WC_WR_FLUSH_ERR, 0x05},	{IBV_WC_BAD_RESP_ERR, 0x10},   {IBV_WC_LOC_ACCESS_ERR, 0x11},
	{IBV_WC_REM_INV_REQ_ERR, 0x12}, {IBV_WC_REM_ACCESS_ERR, 0x13}, {IBV_WC_REM_OP_ERR, 0x14},
	{IBV_WC_RETRY_EXC_ERR, 0x15},	{IBV_WC_RNR_RETRY_EXC_ERR, 0x16},
};

uint8_t verbs_syndrome(uint32_t status)
{
	for (size_t i = 0; i < sizeof(syndromes) / sizeof(syndromes[0]); i++)
		if (syndromes[i].status == status)
			return syndromes[i].syndrome;
	return 0;
}

uint32_t verbs_status(uint8_t syndrome)
{
	for (size_t i = 0; i < sizeof(syndromes) / sizeof(syndromes[0]); i++)
		if (syndromes[i].syndrome == syndrome)
			return syndromes[i].status;
	return IBV_WC_GENERAL_ERR;
}
