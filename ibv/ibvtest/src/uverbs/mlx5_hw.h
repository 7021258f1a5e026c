/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_hw.h: the card's side of mlx5's queues. It reads doorbell records and work queue entries from
 * the memory that libmlx5 writes, and writes completion queue entries there. Every card shares the
 * transports and the memory access (rdma_qp.h). uv_lock is held.
 *
 * The card cannot see stores to a doorbell register. It reads the doorbell records, which libmlx5 writes
 * before it rings, at each pass (mlx5_hw_card). */
#ifndef MLX5_HW_H
#define MLX5_HW_H

#include "../rdma_qp.h"
#include "uverbs.h"

/* The formats of a responder's mini-CQE, MLX5_IB_CQE_RES_FORMAT_* of mlx5-abi.h. */
enum { MLX5_HW_MINI_HASH = 1, MLX5_HW_MINI_CSUM = 2, MLX5_HW_MINI_CSUM_STRIDX = 4 };

/* The longest block of compressed entries. */
enum { MLX5_HW_BLOCK = 64 };

struct mlx5_ib_mr {
	struct uv_mr ibmr;
	struct rdma_mr card;
};

struct mlx5_ib_cq {
	struct uv_cq ibcq;
	struct rdma_link link; /* of all completion queues */
	uint32_t cqn;
	uint64_t buf, db; /* addresses of the ring and of the doorbell record in the caller's memory */
	unsigned log;     /* of the entries */
	uint32_t cqe_size;
	uint8_t mini; /* the format of mini-CQEs; 0: entries are not compressed */
	bool overrun;
	bool collapsed;      /* each entry goes to the first slot */
	bool ignore_overrun; /* nobody moves the consumer index */
	bool devx;           /* no object of the verbs: it has no events */
	uint32_t pi, ci; /* producer index, with the entries of block; consumer index as last read */
	uint32_t events; /* completion events sent: mlx5 numbers the requests for an event */
	uint32_t solicited; /* producer index behind the last entry for which a reader of solicited ones waits */
	/* The entries before pi that are not in the ring yet, because the next one may be compressed with them. */
	struct rdma_cqe block[MLX5_HW_BLOCK];
	unsigned blocked;
};

struct mlx5_ib_qp {
	struct uv_qp ibqp;
	struct rdma_qp card;
	uint64_t sq, rq, db; /* addresses in the caller's memory */
	uint32_t sq_count;   /* blocks of 64 bytes */
	uint32_t rq_count, rq_shift;
	uint16_t sq_ci, rq_ci; /* the next block, and the next receive, to fetch */
	bool devx;             /* no object of the verbs: it has no events */
};

/* mlx5_hw_cq.c */
int mlx5_hw_cq_start(struct mlx5_ib_cq *c);
void mlx5_hw_cq_stop(struct mlx5_ib_cq *c);
/* Appends an entry. It returns false if the queue overruns. */
bool mlx5_hw_cq_push(struct mlx5_ib_cq *c, const struct rdma_cqe *e);
/* Writes the entries that are not in the rings yet, and sends completion events. */
void mlx5_hw_cq_flush(void);

/* mlx5_hw_wq.c: 0 or ENOMEM. */
int mlx5_hw_qp_start(struct mlx5_ib_qp *q);
void mlx5_hw_qp_stop(struct mlx5_ib_qp *q);
/* Drops fetched requests: the indices begin at 0 again. */
void mlx5_hw_qp_reset(struct mlx5_ib_qp *q);
/* Fetch the requests that were posted since. Sends: false when none was posted, or none fits. */
bool mlx5_hw_fetch_sends(struct mlx5_ib_qp *q);
void mlx5_hw_fetch_receives(struct rdma_qp *q);

/* mlx5_hw.c: the operations of queue pairs; and one pass over the live queues of the device: the number of requests that it did. */
extern const struct rdma_ops mlx5_hw_ops;
void mlx5_hw_run(struct rdma_qp *q);
unsigned mlx5_hw_card(struct uv_device *device);

#endif
