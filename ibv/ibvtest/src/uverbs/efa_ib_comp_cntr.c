/* SPDX-License-Identifier: Apache-2.0
 *
 * efa_ib_comp_cntr.c: the driver's completion counters, which are two event counters of the card each, and the card's
 * counting ("RDMA/efa: Add Completion Counters support", linux-rdma, 2026-07-07). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../verbs_soft.h"
#include "efa_ib.h"

struct efa_dev *efa_dev(struct uv_device *device)
{
	if (!device->priv)
		device->priv = calloc(1, sizeof(struct efa_dev));
	return device->priv;
}

int efa_query_comp_cntr_caps(struct uv_device *device, uint32_t *max_counters, uint64_t *max_value, uint32_t *ops)
{
	if (uv_without(device, "comp_cntr"))
		return EOPNOTSUPP;
	*max_counters = EFA_MAX_COMP_CNTR;
	verbs_comp_cntr_limits(device->name, max_value, ops);
	return 0;
}

/* A descriptor of the process, in this one. */
static int descriptor(const struct uv_task *task, int fd)
{
	if (task->pid == getpid())
		return fcntl(fd, F_DUPFD_CLOEXEC, 0);
	int pid = syscall(SYS_pidfd_open, task->pid, 0);
	int own = pid < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pid, fd, 0);
	if (pid >= 0)
		syscall(SYS_close, pid);
	return own;
}

/* Maps the page of a dma-buf that has the word. A memfd stands in for a dma-buf, which few hosts can make. */
static int map_dmabuf(struct efa_word *w, const struct ib_uverbs_buffer_desc *b)
{
	char path[64], target[64] = "";
	uint64_t page = sysconf(_SC_PAGESIZE);
	int fd = descriptor(w->task, b->fd);
	if (fd < 0)
		return EBADF;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(path, target, sizeof(target) - 1);
	off_t size = lseek(fd, 0, SEEK_END);
	void *at = MAP_FAILED;
	int err = EINVAL; /* of a descriptor that is no dma-buf */
	bool is = !strncmp(target, "/dmabuf:", 8) || !strncmp(target, "/memfd:", 7);
	if (n > 0 && is && size >= 0 && b->addr <= (uint64_t)size && (uint64_t)size - b->addr >= 8) {
		at = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, b->addr & ~(page - 1));
		err = at == MAP_FAILED ? errno : 0;
	}
	syscall(SYS_close, fd);
	if (!err)
		w->dmabuf = (uint64_t *)((uint8_t *)at + b->addr % page);
	return err;
}

/* Pins the memory of a word (ib_umem_get_attr). A page that can be read and not written cannot be pinned. */
static int pin(struct uv_call *call, uint16_t id, struct efa_word *w)
{
	struct ib_uverbs_buffer_desc b;
	const struct uv_task asked = {.pid = call->task->pid}; /* the addresses of any process are checked */
	uint64_t now;
	int err = uv_copy_from_or_zero(call, id, &b, sizeof(b));
	if (err)
		return err;
	w->task = call->task;
	if (b.flags || b.length < sizeof(uint64_t))
		return EINVAL;
	if (b.type == IB_UVERBS_BUFFER_TYPE_DMABUF)
		return b.addr % sizeof(uint64_t) ? EINVAL : map_dmabuf(w, &b);
	if (b.type != IB_UVERBS_BUFFER_TYPE_VA)
		return EINVAL;
	w->addr = b.addr;
	err = uv_copy_from_user(&asked, &now, b.addr, sizeof(now));
	if (!err)
		err = uv_copy_to_user(&asked, b.addr, &now, sizeof(now));
	return err ? err : b.addr % sizeof(uint64_t) ? EINVAL : 0;
}

static void unpin(struct efa_word *w)
{
	uintptr_t page = sysconf(_SC_PAGESIZE);
	if (w->dmabuf)
		munmap((void *)((uintptr_t)w->dmabuf & ~(page - 1)), page);
	w->dmabuf = NULL;
}

/* Stores the value as one word: a reader never sees a part of an update. A word of this process is written by a store,
 * when it is mapped still. */
static void store(struct efa_word *w, uint64_t value)
{
	uint64_t before;
	w->value = value;
	if (w->dmabuf)
		__atomic_store_n(w->dmabuf, value, __ATOMIC_RELEASE);
	else if (w->task->pid != getpid())
		(void)uv_copy_to_user(w->task, w->addr, &value, sizeof(value));
	else if (!uv_copy_from_user(w->task, &before, w->addr, sizeof(before)))
		__atomic_store_n((uint64_t *)(uintptr_t)w->addr, value, __ATOMIC_RELEASE);
}

/* The word goes on at 0 past the largest value. */
static void add(struct efa_word *w, uint64_t amount, uint64_t max)
{
	store(w, max == UINT64_MAX ? w->value + amount : (w->value + amount % (max + 1)) % (max + 1));
}

int efa_create_comp_cntr(struct uv_comp_cntr *cntr, struct uv_call *call)
{
	struct efa_comp_cntr *c = (struct efa_comp_cntr *)cntr;
	struct efa_dev *dev = efa_dev(call->device);
	uint32_t ops;
	if (!dev)
		return ENOMEM;
	if (uv_without(call->device, "comp_cntr"))
		return EOPNOTSUPP;
	verbs_comp_cntr_limits(call->device->name, &c->max_value, &ops);
	int err = pin(call, EFA_IB_ATTR_CREATE_COMP_CNTR_COMP_BUFFER, &c->word[0]);
	if (!err)
		err = pin(call, EFA_IB_ATTR_CREATE_COMP_CNTR_ERR_BUFFER, &c->word[1]);
	if (!err && dev->comp_cntrs == EFA_MAX_COMP_CNTR)
		err = ENOMEM; /* EFA_ADMIN_RESOURCE_ALLOCATION_FAILURE */
	if (err) {
		unpin(&c->word[0]);
		unpin(&c->word[1]);
		return err;
	}
	dev->comp_cntrs++;
	return 0;
}

int efa_destroy_comp_cntr(struct uv_comp_cntr *cntr, struct uv_call *call)
{
	struct efa_comp_cntr *c = (struct efa_comp_cntr *)cntr;
	(void)call;
	unpin(&c->word[0]);
	unpin(&c->word[1]);
	efa_dev(cntr->object.device)->comp_cntrs--;
	return 0;
}

/* The driver passes every value on. The card drops the bits that its counters lack. */
int efa_set_comp_cntr(struct uv_comp_cntr *cntr, enum ib_uverbs_comp_cntr_entry entry, uint64_t value)
{
	struct efa_comp_cntr *c = (struct efa_comp_cntr *)cntr;
	c->word[entry].value = 0;
	add(&c->word[entry], value, c->max_value);
	return 0;
}

int efa_inc_comp_cntr(struct uv_comp_cntr *cntr, enum ib_uverbs_comp_cntr_entry entry, uint64_t amount)
{
	struct efa_comp_cntr *c = (struct efa_comp_cntr *)cntr;
	add(&c->word[entry], amount, c->max_value);
	return 0;
}

/* The driver asks the card, which counts a queue pair from its beginning, and counts the operations that it has. */
int efa_qp_attach_comp_cntr(struct uv_qp *qp, struct uv_comp_cntr *cntr, uint32_t ops)
{
	uint64_t max;
	uint32_t has;
	(void)cntr;
	verbs_comp_cntr_limits(qp->object.device->name, &max, &has);
	if (ops & ~has)
		return EOPNOTSUPP; /* EFA_ADMIN_UNSUPPORTED_OPCODE */
	return qp->state > 1 /* INIT */ ? EINVAL : 0;
}

void efa_count(struct uv_qp *qp, uint32_t op, bool ok)
{
	for (unsigned i = 0; i < qp->comp_cntrs; i++) {
		struct efa_comp_cntr *c = (struct efa_comp_cntr *)qp->comp_cntr[i].cntr;
		if (qp->comp_cntr[i].ops & op)
			add(&c->word[!ok], 1, c->max_value);
	}
}

static const struct uv_attr_spec create_attrs[] = {
	UV_ATTR_STRUCT_IN(EFA_IB_ATTR_CREATE_COMP_CNTR_COMP_BUFFER, struct ib_uverbs_buffer_desc, length, UV_MANDATORY),
	UV_ATTR_STRUCT_IN(EFA_IB_ATTR_CREATE_COMP_CNTR_ERR_BUFFER, struct ib_uverbs_buffer_desc, length, UV_MANDATORY),
	{0}};

const struct uv_method efa_comp_cntr_methods[] = {
	{UVERBS_OBJECT_COMP_CNTR, UVERBS_METHOD_COMP_CNTR_CREATE, "COMP_CNTR_CREATE", create_attrs, NULL}, {0}};
