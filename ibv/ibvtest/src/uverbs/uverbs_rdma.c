/* SPDX-License-Identifier: Apache-2.0
 *
 * uverbs_rdma.c: the uverbs kernel as the front of the card's queue pairs (rdma_qp.h). A task of a memory
 * region is the process that registered it. */
#include <string.h>

#include "../rdma_qp.h"
#include "uverbs_core.h"

/* The card passes over each live queue pair again and again, those that wait included. */
void rdma_wake(struct rdma_qp *q, uint64_t at)
{
	q->wake = at;
}

/* Pinned memory stays the card's when its task unmaps it: bytes written there are lost, and bytes read from there
 * are 0. */
void rdma_copy(const void *to_task, void *to, const void *from_task, const void *from, uint64_t n)
{
	uint8_t page[4096];
	for (uint64_t done = 0; done < n;) {
		uint64_t some = n - done < sizeof(page) ? n - done : sizeof(page);
		void *target = to_task ? page : (uint8_t *)to + done;
		const uint8_t *source = (const uint8_t *)from + done;
		if (!from_task)
			memcpy(target, source, some);
		else if (uv_copy_from_user(from_task, target, (uintptr_t)source, some))
			memset(target, 0, some);
		if (to_task)
			(void)uv_copy_to_user(to_task, (uintptr_t)to + done, target, some);
		done += some;
	}
}
