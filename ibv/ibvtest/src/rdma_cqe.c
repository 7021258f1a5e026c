/* SPDX-License-Identifier: Apache-2.0
 *
 * rdma_cqe.c: completion queue entries as mlx5 writes them (struct mlx5_cqe64 and
 * mlx5_err_cqe of <infiniband/mlx5dv.h>). */
#include <endian.h>
#include <string.h>

#include "rdma_qp.h"

enum {
	FLAGS_RQPN = 0x18,
	SRQN_UIDX = 0x20,
	IMM = 0x24,
	BYTE_CNT = 0x2c,
	TIMESTAMP = 0x30,
	VENDOR_ERR_SYND = 0x36,
	SYNDROME = 0x37,
	SOP_DROP_QPN = 0x38,
	WQE_COUNTER = 0x3c,
	OP_OWN = RDMA_CQE_OP_OWN,

	SOLICITED = 1 << 1,
	INLINE_32 = 1 << 2,
	INLINE_64 = 1 << 3,
	GRH = 1 << 28,
};

static void put32(uint8_t *to, uint32_t value)
{
	value = htobe32(value);
	memcpy(to, &value, sizeof(value));
}

/* Up to 32 scattered bytes lie in the first half. More lie in the 64 bytes before the entry, which are the
 * caller's. */
void rdma_cqe_encode(const struct rdma_cqe *from, uint8_t owner, uint8_t e[RDMA_CQE_BYTES])
{
	memset(e, 0, RDMA_CQE_BYTES);
	put32(e + FLAGS_RQPN, from->src_qp | (from->grh ? GRH : 0));
	if (from->scattered && from->scattered <= 32)
		memcpy(e, from->data, from->scattered);
	put32(e + SRQN_UIDX, from->uidx);
	memcpy(e + IMM, &from->imm, sizeof(from->imm)); /* big endian since it was posted */
	put32(e + BYTE_CNT, from->length);
	if (from->opcode < RDMA_CQE_REQ_ERR) {
		uint64_t now = htobe64(rdma_now());
		memcpy(e + TIMESTAMP, &now, sizeof(now));
	} else {
		e[VENDOR_ERR_SYND] = from->vendor;
		e[SYNDROME] = from->syndrome;
	}
	put32(e + SOP_DROP_QPN, (uint32_t)from->wqe_opcode << 24 | from->qpn);
	e[WQE_COUNTER] = from->counter >> 8;
	e[WQE_COUNTER + 1] = from->counter;
	e[OP_OWN] = from->opcode << 4 | (from->solicited ? SOLICITED : 0) | owner;
	if (from->scattered)
		e[OP_OWN] |= from->scattered > 32 ? INLINE_64 : INLINE_32;
}

static const struct {
	uint8_t status, syndrome;
} syndromes[] = {
	{IBV_WC_LOC_LEN_ERR, 0x01},	{IBV_WC_LOC_QP_OP_ERR, 0x02},  {IBV_WC_LOC_PROT_ERR, 0x04},
	{IBV_WC_WR_FLUSH_ERR, 0x05},	{IBV_WC_BAD_RESP_ERR, 0x10},   {IBV_WC_LOC_ACCESS_ERR, 0x11},
	{IBV_WC_REM_INV_REQ_ERR, 0x12}, {IBV_WC_REM_ACCESS_ERR, 0x13}, {IBV_WC_REM_OP_ERR, 0x14},
	{IBV_WC_RETRY_EXC_ERR, 0x15},	{IBV_WC_RNR_RETRY_EXC_ERR, 0x16},
};

uint8_t rdma_syndrome(uint32_t status)
{
	for (size_t i = 0; i < sizeof(syndromes) / sizeof(syndromes[0]); i++)
		if (syndromes[i].status == status)
			return syndromes[i].syndrome;
	return 0;
}
