/* SPDX-License-Identifier: Apache-2.0
 *
 * ends.h: two connected queue pairs, and the operations of the cases on them. */
#ifndef ENDS_H
#define ENDS_H

#include "check.h"

#define BUFFER 4096
#define DEPTH 16

/* One queue pair with completion queues, memory and domain of its own. */
struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buffer;
};

struct options {
	enum ibv_qp_type type; /* 0: RC */
	int sig_all;
	unsigned cqe; /* 0: room for all outstanding requests */
	unsigned access; /* of the memory, beside LOCAL_WRITE */
	unsigned qp_access;
	uint8_t rnr_retry, timeout, retry_cnt;
	bool other_device; /* the far end is mlx5_1 */
};

extern const struct options usual; /* everything allowed, and no time-outs */

void end_make(struct end *e, const char *device, const struct options *o); /* state RESET */
void end_init(struct end *e, const struct options *o);
void end_rtr(struct end *e, const struct end *peer, const struct options *o);
void end_rts(struct end *e, const struct options *o);
void end_connect(struct end *a, struct end *b, const struct options *o); /* both to RTS */
void end_close(struct end *e);
void ends_up(struct end *near, struct end *far, const struct options *o);
void ends_down(struct end *near, struct end *far);

int state_of(struct end *e);
int move(struct end *e, enum ibv_qp_state to);

/* Work requests over the end's own memory, from offset on; they return the verb's result. wr_id is
 * id. */
struct ibv_sge sge_of(struct end *e, unsigned offset, unsigned length);
int post_recv(struct end *e, uint64_t id, unsigned offset, unsigned length);
int post(struct end *e, enum ibv_wr_opcode opcode, uint64_t id, unsigned flags, unsigned offset, unsigned length,
	 struct end *remote, unsigned remote_offset);

/* The next completion comes within twenty seconds: with this id and status, and the vendor's word for it. It
 * is left in wc. */
#define WANT_WC(cq, id, status_)                                                                                       \
	do {                                                                                                           \
		int n_ = 0;                                                                                            \
		memset(&wc, 0, sizeof(wc));                                                                            \
		for (int i_ = 0; i_ < 20000 && !(n_ = ibv_poll_cq(cq, 1, &wc)); i_++)                                  \
			usleep(1000);                                                                                  \
		WANT(n_, 1);                                                                                           \
		WANT(wc.wr_id, id);                                                                                    \
		WANT(wc.status, status_);                                                                              \
		WANT(wc.vendor_err, (status_) ? 0x80 | (status_) : 0);                                                 \
	} while (0)

#define WANT_NONE(cq) WANT(ibv_poll_cq(cq, 1, &wc), 0)

#endif
