/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_data.h: the declarations of the sources that move data: the library's front of the card's queue
 * pairs (rdma_qp.h). The thread that posts a request, or moves its peer on, executes it at once. */
#ifndef FLOWTALLY_IBVTEST_VERBS_DATA_H
#define FLOWTALLY_IBVTEST_VERBS_DATA_H

#include "nic_device.h"
#include "rdma_qp.h"
#include "verbs_soft.h"

struct soft_ah {
	struct ibv_ah ah;
	struct ibv_ah_attr attr;
};

/* The ring is as mlx5's: CQE64 of 64 bytes, big endian, told by their owner bit, the
 * consumer index in the doorbell record. */
struct soft_cq {
	struct ibv_cq cq;
	struct uv_cq *kernel; /* NULL: it went with the device */
	uint8_t *ring;
	uint32_t *doorbell;
	unsigned log;         /* of the entries */
	uint32_t number;      /* CQN */
	uint32_t pi, ci;      /* written; taken by ibv_poll_cq */
	bool overrun;         /* not to be used again */
	bool direct;          /* mlx5dv_init_obj handed it out */
};

struct soft_qp {
	struct ibv_qp qp; /* qp.state is the state that the application last saw */
	struct rdma_qp card;
	struct uv_qp *kernel; /* NULL: it went with the device */
	struct ibv_qp_init_attr init;
};

static inline struct soft_qp *verbs_soft_qp(struct rdma_qp *q)
{
	return RDMA_OUTER(q, struct soft_qp, card);
}

/* verbs_wire.c: the thread that runs the queue pairs that wait. */
void verbs_wire_close(void);

uint32_t verbs_mtu(struct ibv_context *context); /* bytes of a message in one packet */

/* verbs_ring.c: the ring. */
void verbs_cqe_init(struct soft_cq *c);
void verbs_cqe_write(struct soft_cq *c, const struct rdma_cqe *cqe);
bool verbs_cqe_read(struct soft_cq *c, struct rdma_cqe *cqe);
void verbs_cqe_consumed(struct soft_cq *c);
void verbs_cqe_clean(struct soft_cq *c, uint32_t qpn);

/* verbs_cq.c: appends. It returns false if the queue overruns: the queue
 * pairs that complete into it must fail then. */
bool verbs_cq_push(struct soft_cq *c, const struct rdma_cqe *cqe);
int verbs_cq_ring(struct ibv_cq *cq, struct ibvtest_ring *ring);

/* verbs_comp_cntr.c, IBVERBS_1.18. */
struct ibv_comp_cntr *verbs_create_comp_cntr(struct ibv_context *context, const char *verb,
					     const struct ibv_comp_cntr_init_attr *attr, const struct ibvtest_word *words);

#endif
