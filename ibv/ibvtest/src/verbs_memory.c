/* SPDX-License-Identifier: Apache-2.0
 *
 * rdma_memory.c: memory regions and address handles. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "verbs_data.h"

#ifndef MADV_POPULATE_READ /* glibc 2.35 */
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

/* The kernel's own for bits that a device need not know (IBV_ACCESS_OPTIONAL_RANGE). */
#define OPTIONAL_ACCESS 0x3ff00000
#define ACCESS                                                                                                         \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |          \
	 OPTIONAL_ACCESS)

static void release_mr(struct soft_object *o)
{
	struct soft_mr *m = RDMA_OUTER(o, struct soft_mr, object);
	rdma_link_remove(&m->card.wire);
	verbs_pd_use(m->mr.pd, -1);
	free(m);
}

/* EINVAL means that the memory may not be written or, before 5.14, that the kernel does not know
 * the request: those kernels return it for any memory. */
static bool can_ask(void)
{
	uint8_t mine[1];
	uintptr_t page = sysconf(_SC_PAGESIZE);
	return !madvise((void *)((uintptr_t)mine & -page), page, MADV_POPULATE_READ);
}

/* Checks, as pinning would, that the memory is mapped and, if the device is to write, writable. */
int verbs_pin(const void *addr, size_t length, bool write)
{
	uintptr_t page = sysconf(_SC_PAGESIZE), from = (uintptr_t)addr & -page;
	uintptr_t to = ((uintptr_t)addr + length + page - 1) & -page;
	if (!length || to <= from)
		return EINVAL;
	if (!madvise((void *)from, to - from, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ))
		return 0;
	return errno == EINVAL && !can_ask() ? 0 : EFAULT;
}

static int check_mr(void *addr, size_t length, unsigned access)
{
	if (access & ~ACCESS)
		return EOPNOTSUPP;
	/* The man page: remote write and remote atomic need local write. */
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) && !(access & IBV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	return verbs_pin(addr, length, access & IBV_ACCESS_LOCAL_WRITE);
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	int err = verbs_begin(pd->context, "ibv_reg_mr");
	if (err)
		return verbs_made(NULL, err);
	struct soft_mr *m = NULL;
	err = check_mr(addr, length, access);
	if (!err && !(m = calloc(1, sizeof(*m))))
		err = ENOMEM;
	if (m) {
		m->mr.context = pd->context;
		m->mr.pd = pd;
		m->mr.addr = addr;
		m->mr.length = length;
		m->card.pd = pd;
		m->card.addr = (uintptr_t)addr;
		m->card.length = length;
		m->card.iova = iova;
		m->card.access = access;
		m->mr.lkey = m->card.lkey = rdma_wire_key();
		m->mr.rkey = m->card.rkey = rdma_wire_key();
		rdma_link_append(rdma_wire_mrs(), &m->card.wire);
		verbs_pd_use(pd, 1);
		verbs_adopt(pd->context, &m->object, release_mr);
	}
	uv_unlock();
	return verbs_made(m, err);
}

/* <infiniband/verbs.h> has macros of these names. */
VERBS_PUBLIC struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return reg_mr(pd, addr, length, (uintptr_t)addr, access);
}

VERBS_PUBLIC struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return reg_mr(pd, addr, length, iova, access);
}

VERBS_PUBLIC struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
					     unsigned int access)
{
	return reg_mr(pd, addr, length, iova, access);
}

VERBS_PUBLIC int ibv_dereg_mr(struct ibv_mr *mr)
{
	return verbs_destroy(mr->context, "ibv_dereg_mr", &((struct soft_mr *)mr)->object);
}

static void release_ah(struct soft_object *o)
{
	struct soft_ah *a = RDMA_OUTER(o, struct soft_ah, object);
	verbs_pd_use(a->ah.pd, -1);
	free(a);
}

VERBS_PUBLIC struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct soft_ah *a = NULL;
	int err = verbs_begin(pd->context, "ibv_create_ah");
	if (err)
		return verbs_made(NULL, err);
	if (!rdma_ah_valid(attr))
		err = EINVAL;
	else if (!(a = calloc(1, sizeof(*a))))
		err = ENOMEM;
	if (a) {
		a->ah.context = pd->context;
		a->ah.pd = pd;
		a->attr = *attr;
		verbs_pd_use(pd, 1);
		verbs_adopt(pd->context, &a->object, release_ah);
	}
	uv_unlock();
	return verbs_made(a, err);
}

VERBS_PUBLIC int ibv_destroy_ah(struct ibv_ah *ah)
{
	return verbs_destroy(ah->context, "ibv_destroy_ah", &((struct soft_ah *)ah)->object);
}
