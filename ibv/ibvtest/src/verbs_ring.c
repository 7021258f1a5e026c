/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_ring.c: the ring of a completion queue, with an owner bit in each entry. */
#include <endian.h>
#include <string.h>

#include "verbs_data.h"

static uint8_t *slot(struct soft_cq *c, uint32_t i)
{
	return c->ring + (size_t)(i & ((1U << c->log) - 1)) * RDMA_CQE_BYTES;
}

static uint8_t owner(struct soft_cq *c, uint32_t i)
{
	return i >> c->log & 1;
}

enum { QPN = 0x38, LAST_WORD = 0x3c, SIGNATURE = 0x3e };

/* The last word of an entry, in memory order. */
static uint32_t *last(uint8_t *e)
{
	return (uint32_t *)(void *)(e + LAST_WORD);
}

void verbs_cqe_init(struct soft_cq *c)
{
	for (uint32_t i = 0; i < 1U << c->log; i++) {
		slot(c, i)[SIGNATURE] = 0xff;
		slot(c, i)[RDMA_CQE_OP_OWN] = RDMA_CQE_INVALID << 4;
	}
}

/* The word with the owner bit comes last, with release order: a reader that sees it sees
 * the rest. */
void verbs_cqe_write(struct soft_cq *c, const struct rdma_cqe *from)
{
	uint8_t e[RDMA_CQE_BYTES], *to = slot(c, c->pi);
	uint32_t word;
	rdma_cqe_encode(from, owner(c, c->pi), e);
	memcpy(to, e, LAST_WORD);
	memcpy(&word, e + LAST_WORD, sizeof(word));
	__atomic_store_n(last(to), word, __ATOMIC_RELEASE);
	c->pi++;
}

/* Takes the next entry; false when the device has not written it. */
bool verbs_cqe_read(struct soft_cq *c, struct rdma_cqe *to)
{
	uint8_t *e = slot(c, c->ci), own;
	uint32_t word = __atomic_load_n(last(e), __ATOMIC_ACQUIRE);
	memcpy(&own, (uint8_t *)&word + RDMA_CQE_OP_OWN - LAST_WORD, 1);
	if (own >> 4 == RDMA_CQE_INVALID || (own & 1) != owner(c, c->ci))
		return false;
	rdma_cqe_decode(e, to);
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
		struct rdma_cqe of;
		rdma_cqe_decode(e, &of);
		if (of.qpn == qpn) {
			dropped++;
		} else if (dropped) {
			to = slot(c, i + dropped);
			memcpy(to, e, RDMA_CQE_BYTES);
			to[RDMA_CQE_OP_OWN] = (to[RDMA_CQE_OP_OWN] & ~1) | owner(c, i + dropped);
		}
	}
	c->ci += dropped;
	verbs_cqe_consumed(c);
}
