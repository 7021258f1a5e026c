/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_hw.c: the card at work: it passes over the queue pairs, fetches their requests and executes them. */
#include "../nic.h"
#include "efa_ib.h"
#include "mlx5_hw.h"

static struct mlx5_ib_qp *of(struct rdma_qp *q)
{
	return RDMA_OUTER(q, struct mlx5_ib_qp, card);
}

static bool complete(struct rdma_qp *q, bool receive, const struct rdma_cqe *e)
{
	struct rdma_cqe wrong = *e;
	if (receive)
		return mlx5_hw_cq_push(q->recv_cq, e);
	if (uv_mutant("wrong_completion"))
		wrong.counter ^= 0x1f; /* of a request that was not posted */
	return mlx5_hw_cq_push(q->send_cq, &wrong);
}

static void event(struct rdma_qp *q, uint32_t type)
{
	if (!of(q)->devx)
		uv_qp_event(&of(q)->ibqp, type);
}

/* The completion counters of mlx5_ib_main.c. */
static void count(struct rdma_qp *q, uint32_t op, bool ok)
{
	efa_count(&of(q)->ibqp, op, ok);
}

/* Of the port, as query_port says. */
static uint32_t mtu(struct rdma_qp *q)
{
	(void)q;
	return 4096;
}

enum { FRAME = 65536 }; /* bytes of the longest frame */

/* A frame that the netdev does not take is lost, as on a link. */
static void transmit(struct rdma_qp *q, const struct rdma_segments *s)
{
	static uint8_t frame[FRAME]; /* under uv_lock */
	struct rdma_segments to = {.n = 1, .length = s->length, .of = {{NULL, frame, s->length}}};
	struct nic *nic;
	if (s->length < 14 || s->length > sizeof(frame) || uv_device_nic(of(q)->ibqp.object.device, &nic))
		return;
	rdma_segments_copy(&to, s, 0);
	(void)nic_send(nic, frame, s->length);
}

const struct rdma_ops mlx5_hw_ops = {
	.complete = complete, .event = event, .count = count, .fetch = mlx5_hw_fetch_receives, .mtu = mtu, .transmit = transmit};

/* Receives the frames that flows delivered since the last pass. */
static unsigned receive_frames(struct mlx5_ib_qp *q)
{
	struct uv_device *device = q->ibqp.object.device;
	uint8_t frame[NIC_PARSE_MAX + 4];
	unsigned n = 0;
	for (unsigned len; q->ibqp.frames && nic_queue_waiting(q->ibqp.frames) &&
			   (len = nic_queue_take(device->nic, q->ibqp.frames, frame)); n++)
		rdma_receive_frame(&q->card, frame, len);
	return n;
}

/* Fetches and executes until there is nothing more, or the first request has to wait. In an error state the requests are
 * flushed. */
void mlx5_hw_run(struct rdma_qp *q)
{
	uint64_t sent, received;
	do {
		sent = q->sq.next;
		received = q->rq.next;
		if (q->state == IBV_QPS_RTS) {
			mlx5_hw_fetch_sends(of(q));
			rdma_run(q);
		}
		if (q->state == IBV_QPS_ERR || q->state == IBV_QPS_SQE) {
			mlx5_hw_fetch_sends(of(q));
			if (q->state == IBV_QPS_ERR)
				mlx5_hw_fetch_receives(q);
			rdma_flush(q);
		}
	} while (q->sq.next != sent || q->rq.next != received);
}

unsigned mlx5_hw_card(struct uv_device *device)
{
	unsigned done = 0;
	struct rdma_link *qps = rdma_wire_qps();
	for (struct rdma_link *l = qps->next; l != qps; l = l->next) { /* also of other devices: they may be peers */
		struct rdma_qp *q = RDMA_OUTER(l, struct rdma_qp, wire);
		if (q->ops == &mlx5_hw_ops)
			q->gone = uv_lost(of(q)->ibqp.object.file);
	}
	for (struct rdma_link *l = qps->next; l != qps; l = l->next) {
		struct rdma_qp *q = RDMA_OUTER(l, struct rdma_qp, wire);
		if (q->ops != &mlx5_hw_ops || of(q)->ibqp.object.device != device)
			continue;
		uint64_t before = q->sq.next + q->rq.next;
		if (!q->gone) {
			mlx5_hw_run(q);
			done += receive_frames(of(q));
		}
		done += q->sq.next + q->rq.next - before;
	}
	mlx5_hw_cq_flush();
	return done;
}
