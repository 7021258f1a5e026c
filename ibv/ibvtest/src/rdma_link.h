/* SPDX-License-Identifier: Apache-2.0
 *
 * rdma_link.h: a list as a ring of links. A head that points at itself is empty. */
#ifndef FLOWTALLY_IBVTEST_RDMA_LINK_H
#define FLOWTALLY_IBVTEST_RDMA_LINK_H

#include <stddef.h>

/* The struct that embeds a member, from a pointer to the member. */
#define RDMA_OUTER(pointer, type, member) ((type *)((char *)(pointer) - offsetof(type, member)))

struct rdma_link {
	struct rdma_link *next, *prev;
};

static inline void rdma_link_init(struct rdma_link *head)
{
	head->next = head->prev = head;
}

static inline void rdma_link_append(struct rdma_link *head, struct rdma_link *link)
{
	link->prev = head->prev;
	link->next = head;
	head->prev->next = link;
	head->prev = link;
}

static inline void rdma_link_remove(struct rdma_link *link)
{
	link->prev->next = link->next;
	link->next->prev = link->prev;
	rdma_link_init(link);
}

#endif
