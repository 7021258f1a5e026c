/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_data.h: the declarations of the sources that move data: queues, and the wire between
 * them.
 *
 * One lock for all devices, the wire's (verbs_wire_lock), protects everything here, because a
 * work request reaches into the queue pair at the other end, which may be another device's. It is
 * taken under a device's lock or without one, and only the leaves of verbs_calls.c and
 * verbs_events.c are taken under it. Objects are on the wire's lists from creation to release, so
 * every object on a list is alive.
 *
 * The thread that posts a request, or moves its peer on, executes it at once. A request that
 * cannot proceed yet (a receiver that is not ready, a peer that does not reply,
 * FLOWTALLY_IBVTEST_DELAY's WQE) stays at the head of its queue with the time at which the wire's
 * own thread tries again. */
#ifndef FLOWTALLY_IBVTEST_VERBS_DATA_H
#define FLOWTALLY_IBVTEST_VERBS_DATA_H

#include "verbs_data_ops.h"
#include "verbs_soft.h"

#define SOFT_CQE 64       /* bytes of a completion queue entry */
#define SOFT_MAX_SGE 16   /* of a work request */
#define SOFT_RD_ATOMIC 16 /* reads that a queue pair has under way */
#define SOFT_NEVER UINT64_MAX

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
	struct soft_link wire;
	uint64_t iova; /* the address of its first byte in work requests */
	unsigned access;
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
	int armed;            /* 0, 1: for any, 2: for a solicited one */
};

/* Why the head of a send queue cannot proceed. */
enum soft_stall { SOFT_GOES, SOFT_NO_ANSWER, SOFT_NOT_READY };

struct soft_wqe {
	uint64_t wr_id;
	uint32_t opcode, flags, imm;
	uint32_t length; /* of all sges */
	uint16_t counter; /* of its first basic block */
	uint16_t sges;
	uint64_t remote_addr;
	uint32_t rkey, remote_qpn, remote_qkey;
	struct ibv_ah_attr to; /* of UD */
	bool foreign_ah;       /* of another protection domain */
	uint64_t ready, until; /* not before; and stalled no longer than: CLOCK_MONOTONIC, ns */
	enum soft_stall stall;
};

/* A send or receive queue. head counts posted requests, next executed ones, tail polled ones: a
 * slot is free only after polling, as in libmlx5 and libefa. */
struct soft_queue {
	uint64_t head, next, tail;
	uint32_t depth, max_sge, max_inline;
	struct soft_wqe *wqe; /* depth */
	struct ibv_sge *sge;  /* depth * max_sge */
	uint8_t *data;        /* depth * max_inline */
	/* mlx5 numbers work requests by the 64-byte blocks that they take in the queue. */
	uint64_t *block; /* the request that begins there; mask + 1 of them */
	uint32_t mask, blocks;
};

struct soft_qp {
	struct ibv_qp qp;
	struct soft_object object;
	struct soft_link wire;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	uint32_t state; /* qp.state is the state that the application last saw */
	bool gone;      /* with its device */
	struct soft_queue sq, rq;
	uint32_t sq_psn, rq_psn;  /* the next one */
	uint64_t wake;            /* when the wire's thread calls run; SOFT_NEVER */
	void (*run)(struct soft_qp *q);
	struct soft_comp_cntr *counters[32]; /* by the bit of the operation, of which a device may have more than there are */
};

static inline struct soft_wqe *verbs_wqe(struct soft_queue *q, uint64_t n)
{
	return &q->wqe[n % q->depth];
}

static inline struct ibv_sge *verbs_wqe_sge(struct soft_queue *q, uint64_t n)
{
	return &q->sge[n % q->depth * q->max_sge];
}

static inline uint8_t *verbs_wqe_data(struct soft_queue *q, uint64_t n)
{
	return &q->data[n % q->depth * q->max_inline];
}

/* verbs_wire.c: the lock, the lists, time and the thread. */
void verbs_wire_lock(void);
void verbs_wire_unlock(void);
struct soft_link *verbs_wire_qps(void);
struct soft_link *verbs_wire_mrs(void);
uint32_t verbs_wire_number(void); /* of a QP or a CQ: 24 bits, once only */
uint32_t verbs_wire_key(void);    /* of a memory region, once only */
uint64_t verbs_now(void);
void verbs_wake(struct soft_qp *q, uint64_t at); /* the thread runs it then */
void verbs_wire_close(void);
struct soft_qp *verbs_qp_by_number(uint32_t number); /* NULL */
void verbs_gid(struct ibv_device *device, union ibv_gid *gid);
uint32_t verbs_mtu(struct ibv_context *context); /* bytes of a message in one packet */

/* verbs_queue.c: slots; 0 or ENOMEM. */
int verbs_queue_make(struct soft_queue *q, uint32_t depth, uint32_t max_sge, uint32_t max_inline, uint32_t most);
void verbs_queue_free(struct soft_queue *q);
void verbs_queue_clear(struct soft_queue *q);
/* Takes the next slot, of so many bytes as mlx5 would need for it. NULL: it is full. */
struct soft_wqe *verbs_queue_take(struct soft_queue *q, uint32_t bytes);

/* verbs_post.c: the most bytes that a send takes in the queue. */
uint32_t verbs_send_bytes(uint32_t type, uint32_t sges, uint32_t inlined);

/* verbs_segments.c: the buffers of request n, false when one is not memory of this domain
 * with that access; and all of from copied to where to begins, after so many bytes. to is
 * long enough. */
struct soft_segments {
	unsigned n;
	struct {
		uint8_t *at;
		uint64_t length;
	} of[SOFT_MAX_SGE];
	uint64_t length;
};
bool verbs_gather(struct soft_qp *q, struct soft_queue *queue, uint64_t n, unsigned access, struct soft_segments *s);
void verbs_segments_add(struct soft_segments *s, void *at, uint64_t length);
void verbs_segments_copy(struct soft_segments *to, const struct soft_segments *from, uint64_t skip);

/* verbs_run.c: executes the send queue of q as far as possible. */
void verbs_run(struct soft_qp *q);
void verbs_run_peer(struct soft_qp *q); /* which may have waited for q */

/* verbs_complete.c: the end of a work request, with its CQE and its counters. */
void verbs_complete_send(struct soft_qp *q, uint32_t status);
struct soft_received {
	uint32_t status, opcode, length, imm, src_qp;
	bool with_imm, grh, solicited;
};
void verbs_complete_recv(struct soft_qp *q, const struct soft_received *r);
void verbs_count_op(struct soft_qp *q, uint32_t op, bool ok);
/* To state ERR or SQE: outstanding requests are flushed. */
void verbs_fail(struct soft_qp *q, uint32_t state);
void verbs_flush(struct soft_qp *q);

/* verbs_memory.c: is there memory of that key, of that domain, with that access? NULL. */
void *verbs_memory(struct ibv_pd *pd, uint32_t key, bool remote, uint64_t addr, uint64_t length, unsigned access);
int verbs_pin(const void *addr, size_t length, bool write); /* 0, or why it could not be pinned */
bool verbs_ah_valid(const struct ibv_ah_attr *attr);        /* RoCE wants a GRH; of GIDs and ports there is one */

/* verbs_cqe.c: the ring. Opcodes are the opcodes of mlx5's CQEs and WQEs. */
enum {
	SOFT_CQE_REQ = 0,
	SOFT_CQE_RESP_WR_IMM = 1,
	SOFT_CQE_RESP_SEND = 2,
	SOFT_CQE_RESP_SEND_IMM = 3,
	SOFT_CQE_REQ_ERR = 13,
	SOFT_CQE_RESP_ERR = 14,

	SOFT_OP_RDMA_WRITE = 0x08,
	SOFT_OP_RDMA_WRITE_IMM = 0x09,
	SOFT_OP_SEND = 0x0a,
	SOFT_OP_SEND_IMM = 0x0b,
	SOFT_OP_RDMA_READ = 0x10,
};
struct soft_cqe {
	uint8_t opcode, wqe_opcode, syndrome, vendor;
	bool solicited, grh;
	uint16_t counter;
	uint32_t qpn, length, imm, src_qp;
};
void verbs_cqe_init(struct soft_cq *c);
void verbs_cqe_write(struct soft_cq *c, const struct soft_cqe *cqe);
bool verbs_cqe_read(struct soft_cq *c, struct soft_cqe *cqe);
void verbs_cqe_consumed(struct soft_cq *c);
void verbs_cqe_clean(struct soft_cq *c, uint32_t qpn);
uint8_t verbs_syndrome(uint32_t status);
uint32_t verbs_status(uint8_t syndrome);

/* verbs_cq.c: appends, with an event where one was asked for. It returns false if the queue overruns: the queue
 * pairs that complete into it must fail then. */
bool verbs_cq_push(struct soft_cq *c, const struct soft_cqe *cqe);
int verbs_cq_ring(struct ibv_cq *cq, struct ibvtest_ring *ring);

/* verbs_channel.c: holds on a channel, device locked; and an event of the queue, wire locked. */
void verbs_channel_use(struct ibv_comp_channel *channel, int by);
void verbs_channel_event(struct soft_cq *c);

/* verbs_comp_cntr.c, IBVERBS_1.18. */
struct ibv_comp_cntr *verbs_create_comp_cntr(struct ibv_context *context, const char *verb,
					     const struct ibv_comp_cntr_init_attr *attr, uint64_t *completions,
					     uint64_t *errors);

#endif
