/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_data.h: the declarations of the sources that move data: the library's front of the card's queue
 * pairs (rdma_qp.h).
 *
 * The wire's lock (verbs_wire_lock) is taken under a device's lock or without one, and only the leaves of
 * verbs_calls.c and verbs_events.c are taken under it. The thread that posts a request, or moves its peer on,
 * executes it at once. */
#ifndef FLOWTALLY_IBVTEST_VERBS_DATA_H
#define FLOWTALLY_IBVTEST_VERBS_DATA_H

#include "nic_device.h"
#include "rdma_qp.h"
#include "verbs_soft.h"

/* One of the two values of a completion counter. The device keeps the value and writes it to the
 * word at each update. Readers read the word. */
struct soft_count {
	uint64_t value, *word;
};

struct soft_comp_cntr {
	struct ibv_comp_cntr cntr;
	struct soft_object object; /* users: operations of QPs that it counts */
	uint64_t max;
	struct soft_count completions, errors;
	uint64_t own[2]; /* the words, unless they are the caller's */
};

/* Adds, wrapping to 0 past max; wire locked. The word is stored with release order: a reader that
 * loads it with acquire order sees the data that the counted operation has written. */
void verbs_count_add(struct soft_count *count, uint64_t amount, uint64_t max);
void verbs_count_set(struct soft_count *count, uint64_t value);

struct soft_pd {
	struct ibv_pd pd;
	struct soft_object object;
};

struct soft_mr {
	struct ibv_mr mr;
	struct soft_object object;
	struct rdma_mr card;
};

struct soft_ah {
	struct ibv_ah ah;
	struct soft_object object;
	struct ibv_ah_attr attr;
};

/* The ring is as mlx5's: CQE64 of 64 bytes, big endian, told by their owner bit, the
 * consumer index in the doorbell record. */
struct soft_cq {
	struct ibv_cq cq;
	struct soft_object object;
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
	struct soft_object object;
	struct rdma_qp card;
	struct uv_qp *kernel;
	struct ibv_qp_init_attr init;
	struct soft_comp_cntr *counters[32]; /* by the bit of the operation, of which a device may have more than there are */
};

static inline struct soft_qp *verbs_soft_qp(struct rdma_qp *q)
{
	return RDMA_OUTER(q, struct soft_qp, card);
}

/* verbs_wire.c: the lock, and the thread that runs the queue pairs that wait. */
void verbs_wire_lock(void);
void verbs_wire_unlock(void);
void verbs_wire_close(void);

uint32_t verbs_mtu(struct ibv_context *context); /* bytes of a message in one packet */

/* verbs_post.c: the most bytes that a send takes in the queue. */
uint32_t verbs_send_bytes(uint32_t type, uint32_t sges, uint32_t inlined);

int verbs_pin(const void *addr, size_t length, bool write); /* 0, or why it could not be pinned */

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
					     const struct ibv_comp_cntr_init_attr *attr, uint64_t *completions,
					     uint64_t *errors);

#endif
