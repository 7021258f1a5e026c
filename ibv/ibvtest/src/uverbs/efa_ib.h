/* SPDX-License-Identifier: Apache-2.0
 *
 * efa_ib.h: the driver efa of the uverbs kernel in software, and its card. The driver (efa_ib_*.c) makes objects as
 * drivers/infiniband/hw/efa/efa_verbs.c does, with its checks and errnos. The card (efa_hw_*.c) reads the descriptors
 * that libefa writes into mapped memory. All of it runs under uv_lock. */
#ifndef UVERBS_EFA_IB_H
#define UVERBS_EFA_IB_H

#include "efa_abi_kernel.h"
#include "uverbs.h"

enum {
	EFA_MTU = 8928,
	EFA_MAX_LLQ = 65536, /* bytes of a send queue */
	EFA_MAX_RQ_WR = 32768,
	EFA_MAX_QP = 1024,
	EFA_MAX_CQE = 1 << 16,
	EFA_MAX_SQ_SGE = 2,
	EFA_MAX_RQ_SGE = 3,
	EFA_MAX_RDMA = 1 << 30,
	EFA_MAX_MR = 4096,
	EFA_MAX_AH = 4096,
	EFA_MAX_COMP_CNTR = 512,
	EFA_INLINE = 32,
	EFA_SUB_CQS = 2, /* the first is of send queues, the second of receive queues */
};

struct efa_pd {
	struct uv_pd pd;
	uint16_t pdn;
};

struct efa_mr {
	struct uv_mr mr;
	unsigned index;
};

struct efa_ah {
	struct uv_ah ah;
	unsigned index;
	struct efa_ah *next; /* of the same number: the card has one for each address in a protection domain */
};

struct efa_cq {
	struct uv_cq cq;
	uint8_t *ring;
	uint64_t key;
	uint32_t entry_size, entries;     /* of one sub CQ */
	uint32_t produced[EFA_SUB_CQS];
};

/* efa_word is a counter of the card, which it writes to memory of a process at each update, and not before the first. */
struct efa_word {
	struct uv_task *task;
	uint64_t addr;   /* in the process */
	uint64_t *dmabuf; /* or in a dma-buf that the card has mapped */
	uint64_t value;
};

struct efa_comp_cntr {
	struct uv_comp_cntr cntr;
	uint64_t max_value;
	struct efa_word word[2]; /* by enum ib_uverbs_comp_cntr_entry */
};

struct efa_qp {
	struct uv_qp qp;
	struct efa_qp *next; /* of the device */
	bool srd;
	uint32_t qkey, sq_psn;
	uint8_t rnr_retry;
	unsigned rnr; /* passes in which the receiver was not ready */
	uint32_t wqe_size, sq_entries, rq_entries;
	uint8_t *llq;
	struct efa_io_rx_desc *rq;
	uint32_t *sq_db, *rq_db; /* the index behind the last posted descriptor, in 16 bits */
	uint16_t sq_next, rq_next;
	uint64_t key[4];
};

/* efa_dev is uv_device.priv; NULL: no memory. */
struct efa_dev {
	unsigned comp_cntrs, last_pdn;
	struct efa_qp *qps;
	uint8_t generation[EFA_MAX_QP]; /* of the number of each place */
	struct efa_mr *mrs[EFA_MAX_MR];
	struct efa_ah *ahs[EFA_MAX_AH];
};

struct efa_dev *efa_dev(struct uv_device *device);

enum { EFA_NO_AH = 0xffff };
/* efa_ah_number returns the number that the domain's address handle for that address has, or EFA_NO_AH. */
unsigned efa_ah_number(const struct efa_dev *dev, const struct uv_pd *pd, const uint8_t gid[16]);

int efa_create_cq(struct uv_cq *cq, struct uv_call *call);
int efa_destroy_cq(struct uv_cq *cq, struct uv_call *call);
int efa_create_qp(struct uv_qp *qp, struct uv_call *call);
int efa_modify_qp(struct uv_qp *qp, const struct ib_uverbs_modify_qp *attr, uint32_t mask, struct uv_call *call);
int efa_query_qp(struct uv_qp *qp, struct ib_uverbs_query_qp_resp *attr, uint32_t mask);
int efa_destroy_qp(struct uv_qp *qp, struct uv_call *call);

int efa_query_comp_cntr_caps(struct uv_device *device, uint32_t *max_counters, uint64_t *max_value, uint32_t *ops);
int efa_create_comp_cntr(struct uv_comp_cntr *cntr, struct uv_call *call);
int efa_destroy_comp_cntr(struct uv_comp_cntr *cntr, struct uv_call *call);
int efa_set_comp_cntr(struct uv_comp_cntr *cntr, enum ib_uverbs_comp_cntr_entry entry, uint64_t value);
int efa_inc_comp_cntr(struct uv_comp_cntr *cntr, enum ib_uverbs_comp_cntr_entry entry, uint64_t amount);
int efa_qp_attach_comp_cntr(struct uv_qp *qp, struct uv_comp_cntr *cntr, uint32_t ops);
/* efa_count counts the end of an operation of the queue pair. */
void efa_count(struct uv_qp *qp, uint32_t op, bool ok);
extern const struct uv_method efa_comp_cntr_methods[];

/* efa_card does the posted work of the device's queue pairs: the number of requests that ended. */
unsigned efa_card(struct uv_device *device);

/* A place in the memory of a process, by a key of a region. */
struct efa_buffer {
	const struct uv_task *task;
	uint64_t addr, length;
};
enum { EFA_BUFFERS = 16 };
struct efa_buffers {
	struct efa_buffer of[EFA_BUFFERS];
	unsigned n;
	uint64_t length;
};
/* efa_translate appends the buffer: false when no region with that access has it. */
bool efa_translate(struct efa_dev *dev, const struct uv_pd *pd, uint32_t key, bool remote, uint32_t access, uint64_t addr,
		   uint64_t length, struct efa_buffers *to);
/* efa_copy moves from's bytes to the place that begins skip bytes into to. EFAULT: a page went. */
int efa_copy(const struct efa_buffers *to, uint64_t skip, const struct efa_buffers *from, const uint8_t *inlined);

/* efa_complete writes a completion queue entry, whose phase is stored last. */
void efa_complete(struct efa_cq *cq, unsigned sub, struct efa_io_rx_cdesc_ex *e);
/* efa_receive takes the request at the head of the receive queue, which has one, and completes it. */
void efa_receive(struct efa_qp *qp, struct efa_io_rx_cdesc_ex *e, uint8_t status, unsigned descriptors);
/* efa_receive_next reads that request: its number of descriptors, 0 when no request is posted. */
unsigned efa_receive_next(struct efa_qp *qp, struct efa_io_rx_desc desc[EFA_BUFFERS]);

#endif
