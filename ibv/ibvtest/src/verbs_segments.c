/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_segments.c: the memory that a message is read from or written to. */
#include <string.h>

#include "verbs_data.h"

void verbs_segments_add(struct soft_segments *s, void *at, uint64_t length)
{
	s->of[s->n].at = at;
	s->of[s->n++].length = length;
	s->length += length;
}

bool verbs_gather(struct soft_qp *q, struct soft_queue *queue, uint64_t n, unsigned access, struct soft_segments *s)
{
	struct soft_wqe *w = verbs_wqe(queue, n);
	struct ibv_sge *sge = verbs_wqe_sge(queue, n);
	s->n = 0;
	s->length = 0;
	if (w->flags & IBV_SEND_INLINE) {
		verbs_segments_add(s, verbs_wqe_data(queue, n), w->length);
		return true;
	}
	for (unsigned i = 0; i < w->sges; i++) {
		if (!sge[i].length)
			continue;
		void *at = verbs_memory(q->qp.pd, sge[i].lkey, false, sge[i].addr, sge[i].length, access);
		if (!at)
			return false;
		verbs_segments_add(s, at, sge[i].length);
	}
	return true;
}

void verbs_segments_copy(struct soft_segments *to, const struct soft_segments *from, uint64_t skip)
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
			memmove(to->of[at].at + skip, from->of[i].at + done, n);
			skip += n;
			done += n;
		}
	}
}
