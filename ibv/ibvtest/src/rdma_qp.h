/* SPDX-License-Identifier: Apache-2.0
 *
 * rdma_qp.h: queue pairs of the card: their work requests, their transports, and the wire between
 * them. The uverbs kernel (uverbs/) stands in front of them: it fills the queues, and writes the completions where its readers look for them (rdma_ops).
 *
 * One lock of the front for all devices protects everything here, because a work request reaches into
 * the queue pair at the other end, which may be another device's. Objects are on the wire's lists
 * from creation to release, so every object on a list is alive.
 *
 * rdma_run executes a request at once. A request that cannot proceed yet (a receiver that is not
 * ready, a peer that does not reply, a delay) stays at the head of its queue with the time at which
 * the front tries again (rdma_wake). */
#ifndef FLOWTALLY_IBVTEST_RDMA_QP_H
#define FLOWTALLY_IBVTEST_RDMA_QP_H

#include <stdbool.h>
#include <stdint.h>

#include "rdma_link.h"
#include "verbs_abi.h"

#define RDMA_SEGMENTS 64
#define RDMA_RD_ATOMIC 16 /* reads that a queue pair has under way */
#define RDMA_NEVER UINT64_MAX
#define RDMA_MAX_SCATTER 64 /* bytes of a message that an entry of a completion queue can hold */

/* A memory region. Its memory belongs to a task. */
struct rdma_mr {
	struct rdma_link wire;
	const void *pd, *task;
	uint64_t addr, length, iova; /* iova: the address of its first byte in work requests */
	uint32_t lkey, rkey;
	unsigned access;
};

/* Why the head of a send queue cannot proceed. */
enum rdma_stall { RDMA_GOES, RDMA_NO_ANSWER, RDMA_NOT_READY };

struct rdma_wqe {
	uint64_t wr_id;
	uint32_t opcode, flags, imm;
	uint32_t length; /* of all sges */
	uint16_t counter; /* of its first basic block */
	uint16_t sges;
	uint64_t remote_addr;
	uint32_t rkey, remote_qpn, remote_qkey;
	struct ibv_ah_attr to; /* of UD */
	uint32_t fault;        /* the status with which it ends without being executed; 0: none */
	uint64_t ready, until; /* not before; and stalled no longer than: CLOCK_MONOTONIC, ns */
	enum rdma_stall stall;
};

/* A send or receive queue. head counts posted requests, next executed ones, tail polled ones: a
 * slot is free only after polling, as in libmlx5 and libefa. */
struct rdma_queue {
	uint64_t head, next, tail;
	uint32_t depth, max_sge, max_inline;
	struct rdma_wqe *wqe; /* depth */
	struct ibv_sge *sge;  /* depth * max_sge */
	uint8_t *data;        /* depth * max_inline */
	/* mlx5 numbers work requests by the 64-byte blocks that they take in the queue. */
	uint64_t *block; /* the request that begins there; mask + 1 of them */
	uint32_t mask, blocks;
};

/* The kinds of a completion queue entry. Opcodes are the opcodes of mlx5's CQEs and WQEs. */
enum {
	RDMA_CQE_REQ = 0,
	RDMA_CQE_RESP_WR_IMM = 1,
	RDMA_CQE_RESP_SEND = 2,
	RDMA_CQE_RESP_SEND_IMM = 3,
	RDMA_CQE_REQ_ERR = 13,
	RDMA_CQE_RESP_ERR = 14,

	RDMA_OP_RDMA_WRITE = 0x08,
	RDMA_OP_RDMA_WRITE_IMM = 0x09,
	RDMA_OP_SEND = 0x0a,
	RDMA_OP_SEND_IMM = 0x0b,
	RDMA_OP_RDMA_READ = 0x10,
};

struct rdma_cqe {
	uint8_t opcode, wqe_opcode, syndrome, vendor;
	bool solicited, grh;
	uint16_t counter;
	uint32_t qpn, uidx, length, imm, src_qp;
	uint32_t scattered; /* bytes of the message that are in data and not in memory */
	uint8_t data[RDMA_MAX_SCATTER];
};

struct rdma_qp;
struct rdma_segments;

/* The front of a queue pair. */
struct rdma_ops {
	/* Appends an entry to the completion queue of receives or of sends. It returns false if the
	 * queue overruns: the queue pairs that complete into it fail then. */
	bool (*complete)(struct rdma_qp *q, bool receive, const struct rdma_cqe *e);
	/* Sends an asynchronous event of the queue pair. */
	void (*event)(struct rdma_qp *q, uint32_t type);
	/* A request ended; NULL: it is not counted. Completion counters ignore the signaled flag: they count every
	 * request (so does libfabric, whose FI_SELECTIVE_COMPLETION does not affect them). */
	void (*count)(struct rdma_qp *q, uint32_t op, bool ok);
	/* Takes the receives that were posted since; NULL: posting fills the queue. */
	void (*fetch)(struct rdma_qp *q);
	/* The largest datagram, in bytes. */
	uint32_t (*mtu)(struct rdma_qp *q);
	/* Sends the frame of a RAW_PACKET queue pair. NULL: no such request is posted. */
	void (*transmit)(struct rdma_qp *q, const struct rdma_segments *frame);
};

struct rdma_qp {
	struct rdma_link wire;
	const struct rdma_ops *ops;
	const void *pd;
	void *send_cq, *recv_cq; /* by which queue pairs that share one are found */
	union ibv_gid gid;       /* of its own port */
	uint32_t number, type, state, uidx;
	struct ibv_qp_attr attr;
	bool signal_all;
	bool gone; /* with its device */
	/* The largest message that arrives, or is read, in the entry of the completion queue in place of
	 * memory; 0: none does. */
	uint32_t scatter_receive, scatter_read;
	struct rdma_queue sq, rq;
	uint32_t sq_psn, rq_psn; /* the next one */
	uint64_t wake;           /* when the front calls run; RDMA_NEVER */
	void (*run)(struct rdma_qp *q);
};

static inline struct rdma_wqe *rdma_wqe(struct rdma_queue *q, uint64_t n)
{
	return &q->wqe[n % q->depth];
}

static inline struct ibv_sge *rdma_wqe_sge(struct rdma_queue *q, uint64_t n)
{
	return &q->sge[n % q->depth * q->max_sge];
}

static inline uint8_t *rdma_wqe_data(struct rdma_queue *q, uint64_t n)
{
	return &q->data[n % q->depth * q->max_inline];
}

/* rdma_wire.c: the lists and time. */
struct rdma_link *rdma_wire_qps(void);
struct rdma_link *rdma_wire_mrs(void);
uint64_t rdma_now(void);

/* rdma_queue.c: slots; 0 or ENOMEM. */
int rdma_queue_make(struct rdma_queue *q, uint32_t depth, uint32_t max_sge, uint32_t max_inline, uint32_t most);
void rdma_queue_free(struct rdma_queue *q);
void rdma_queue_clear(struct rdma_queue *q);
/* Takes the next slot, of so many bytes as mlx5 would need for it. NULL: it is full. */
struct rdma_wqe *rdma_queue_take(struct rdma_queue *q, uint32_t bytes);

/* rdma_segments.c: the memory that a message is read from or written to. */
struct rdma_segments {
	unsigned n;
	struct {
		const void *task;
		uint8_t *at;
		uint64_t length;
	} of[RDMA_SEGMENTS];
	uint64_t length;
};
/* The region of a key, of that domain, with that access, that holds this memory; NULL. */
struct rdma_mr *rdma_memory(const void *pd, uint32_t key, bool remote, uint64_t addr, uint64_t length, unsigned access);
/* The buffers of request n: false when one is not memory of the domain with that access. */
bool rdma_gather(struct rdma_qp *q, struct rdma_queue *queue, uint64_t n, unsigned access, struct rdma_segments *s);
void rdma_segments_add(struct rdma_segments *s, const void *task, void *at, uint64_t length);
/* Copies all of from to where to begins, after so many bytes. to is long enough. */
void rdma_segments_copy(struct rdma_segments *to, const struct rdma_segments *from, uint64_t skip);

/* Of the front: calls q->run at a time, and copies between the memories of two tasks. */
void rdma_wake(struct rdma_qp *q, uint64_t at);
void rdma_copy(const void *to_task, void *to, const void *from_task, const void *from, uint64_t n);

/* rdma_run.c: executes the send queue of q as far as possible. */
void rdma_run(struct rdma_qp *q);
void rdma_receive_frame(struct rdma_qp *q, const uint8_t *frame, uint32_t length); /* lost without a posted receive */
void rdma_run_peer(struct rdma_qp *q); /* which may have waited for q */

/* rdma_complete.c: the end of a work request, with its entry and its counters. */
struct rdma_ended {
	uint32_t status, opcode, length, imm, src_qp;
	bool with_imm, grh, solicited;
	uint32_t scattered; /* bytes in data */
	uint8_t data[RDMA_MAX_SCATTER];
};
void rdma_complete_send(struct rdma_qp *q, const struct rdma_ended *end);
void rdma_complete_recv(struct rdma_qp *q, const struct rdma_ended *end);
void rdma_count(struct rdma_qp *q, uint32_t op, bool ok);
/* To state ERR or SQE: outstanding requests are flushed. */
void rdma_fail(struct rdma_qp *q, uint32_t state);
void rdma_flush(struct rdma_qp *q);

/* rdma_modify.c: ibv_modify_qp(3), all or nothing: 0 or EINVAL, which changes no attribute. RESET drops the posted
 * requests. */
int rdma_modify(struct rdma_qp *q, const struct ibv_qp_attr *attr, int mask);
bool rdma_ah_valid(const struct ibv_ah_attr *attr); /* RoCE wants a GRH; of GIDs and ports there is one */

/* rdma_states.c: may ibv_modify_qp(3) do this? */
bool rdma_transition(uint32_t type, uint32_t from, uint32_t to, int mask);

/* rdma_cqe.c: an entry in the 64 bytes that mlx5 writes, with the owner bit. */
enum { RDMA_CQE_BYTES = 64, RDMA_CQE_OP_OWN = 0x3f };
void rdma_cqe_encode(const struct rdma_cqe *from, uint8_t owner, uint8_t to[RDMA_CQE_BYTES]);
uint8_t rdma_syndrome(uint32_t status);

#endif
