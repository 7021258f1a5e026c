/* SPDX-License-Identifier: Apache-2.0
 *
 * rdma_segments.c: the memory that a message is read from or written to. */
#include "rdma_qp.h"

struct rdma_mr *rdma_memory(const void *pd, uint32_t key, bool remote, uint64_t addr, uint64_t length, unsigned access)
{
	struct rdma_link *mrs = rdma_wire_mrs();
	for (struct rdma_link *l = mrs->next; l != mrs; l = l->next) {
		struct rdma_mr *m = RDMA_OUTER(l, struct rdma_mr, wire);
		if ((remote ? m->rkey : m->lkey) != key)
			continue;
		if (m->pd != pd || (m->access & access) != access || addr < m->iova)
			return NULL;
		return length > m->length || addr - m->iova > m->length - length ? NULL : m;
	}
	return NULL;
}

void rdma_segments_add(struct rdma_segments *s, const void *task, void *at, uint64_t length)
{
	s->of[s->n].task = task;
	s->of[s->n].at = at;
	s->of[s->n++].length = length;
	s->length += length;
}

bool rdma_gather(struct rdma_qp *q, struct rdma_queue *queue, uint64_t n, unsigned access, struct rdma_segments *s)
{
	struct rdma_wqe *w = rdma_wqe(queue, n);
	struct ibv_sge *sge = rdma_wqe_sge(queue, n);
	s->n = 0;
	s->length = 0;
	if (w->flags & IBV_SEND_INLINE) {
		rdma_segments_add(s, NULL, rdma_wqe_data(queue, n), w->length);
		return true;
	}
	for (unsigned i = 0; i < w->sges; i++) {
		if (!sge[i].length)
			continue;
		struct rdma_mr *m = rdma_memory(q->pd, sge[i].lkey, false, sge[i].addr, sge[i].length, access);
		if (!m)
			return false;
		rdma_segments_add(s, m->task, (void *)(uintptr_t)(m->addr + (sge[i].addr - m->iova)), sge[i].length);
	}
	return true;
}

void rdma_segments_copy(struct rdma_segments *to, const struct rdma_segments *from, uint64_t skip)
{
	unsigned at = 0;
	for (unsigned i = 0; i < from->n; i++) {
		uint64_t done = 0;
		while (done < from->of[i].length) {
			if (skip >= to->of[at].length) {
				skip -= to->of[at++].length;
				continue;
			}
			uint64_t n = from->of[i].length - done, room = to->of[at].length - skip;
			if (n > room)
				n = room;
			rdma_copy(to->of[at].task, to->of[at].at + skip, from->of[i].task, from->of[i].at + done, n);
			skip += n;
			done += n;
		}
	}
}
