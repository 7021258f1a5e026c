/* SPDX-License-Identifier: Apache-2.0
 *
 * efa.c: the software libefa.so.1: completion counters in memory of the application
 * (efadv_create_comp_cntr(3)). It refuses the same calls as libefa of rdma-core 65. libibverbs
 * refuses the calls that the kernel would: memory that is not mapped, or not 8 bytes at a
 * multiple of 8. A memfd stands in for a DMA-BUF, which few hosts can make. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "provider.h"

/* <infiniband/efadv.h> of rdma-core 65, which distributions do not have yet. The declarations are
 * written independently of ibv/efa_abi.h, so that an error in one of the two makes the tests
 * between them fail. */

enum { EFADV_MEMORY_LOCATION_VA, EFADV_MEMORY_LOCATION_DMABUF };

struct efadv_memory_location {
	uint8_t *ptr;
	struct {
		uint64_t offset;
		int32_t fd;
		uint32_t reserved;
	} dmabuf;
	uint8_t type;
	uint8_t reserved[7];
};

enum {
	EFADV_COMP_CNTR_INIT_WITH_COMP_EXTERNAL_MEM = 1 << 0,
	EFADV_COMP_CNTR_INIT_WITH_ERR_EXTERNAL_MEM = 1 << 1,
};

struct efadv_comp_cntr_init_attr {
	uint64_t comp_mask;
	uint32_t flags;
	uint32_t reserved;
	struct efadv_memory_location comp_cntr_ext_mem;
	struct efadv_memory_location err_cntr_ext_mem;
};

_Static_assert(sizeof(struct efadv_memory_location) == 32 && offsetof(struct efadv_memory_location, type) == 24, "padded");
_Static_assert(sizeof(struct efadv_comp_cntr_init_attr) == 80, "padded");

PROVIDER_PUBLIC struct ibv_comp_cntr *efadv_create_comp_cntr(struct ibv_context *context,
							     struct ibv_comp_cntr_init_attr *attr,
							     struct efadv_comp_cntr_init_attr *efa_attr, uint32_t inlen);

static struct ibv_comp_cntr *fail(int err)
{
	errno = err;
	return NULL;
}

/* A caller of a later libefa may pass a longer struct, if the rest is 0. */
static bool known(const struct efadv_comp_cntr_init_attr *a, uint32_t length)
{
	const uint8_t *bytes = (const uint8_t *)a;
	bool zero = length >= sizeof(*a);
	for (size_t i = sizeof(*a); zero && i < length; i++)
		zero = !bytes[i];
	return zero;
}

/* Maps the page of a DMA-BUF that has the word. The mapping stays until the process ends, as a device may write to it. */
static int map(int fd, uint64_t offset, uint64_t **word)
{
	char path[64], target[64] = "";
	uint64_t page = sysconf(_SC_PAGESIZE);
	off_t size = lseek(fd, 0, SEEK_END);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (readlink(path, target, sizeof(target) - 1) < 0)
		return EBADF;
	if (strncmp(target, "/dmabuf:", 8) && strncmp(target, "/memfd:", 7))
		return EINVAL;
	if (offset % sizeof(uint64_t) || size < 8 || offset > (uint64_t)size - 8)
		return EINVAL;
	uint8_t *at = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset & ~(page - 1));
	if (at == MAP_FAILED)
		return errno;
	*word = (uint64_t *)(void *)(at + offset % page);
	return 0;
}

/* The word of one side; *word is NULL when the library is to have its own. */
static int locate(const struct efadv_memory_location *m, bool external, uint64_t **word)
{
	*word = NULL;
	if (!external)
		return 0;
	if (m->type == EFADV_MEMORY_LOCATION_DMABUF)
		return map(m->dmabuf.fd, m->dmabuf.offset, word);
	*word = (uint64_t *)(void *)m->ptr;
	return m->ptr ? 0 : EFAULT; /* the result of pinning the first page */
}

struct ibv_comp_cntr *efadv_create_comp_cntr(struct ibv_context *context, struct ibv_comp_cntr_init_attr *attr,
					     struct efadv_comp_cntr_init_attr *efa_attr, uint32_t inlen)
{
	const uint32_t flags = EFADV_COMP_CNTR_INIT_WITH_COMP_EXTERNAL_MEM | EFADV_COMP_CNTR_INIT_WITH_ERR_EXTERNAL_MEM;
	const struct ibvtest_device_ops *ops = provider_ops(context->device);
	uint64_t *completions, *errors;
	int err;

	if (!ops || !ops->offers_external || !ops->offers_external(context->device))
		return fail(EOPNOTSUPP);
	if (!known(efa_attr, inlen))
		return fail(EINVAL);
	if (attr->comp_mask || attr->flags || attr->type != IBV_COMP_CNTR_TYPE_WRS || efa_attr->comp_mask ||
	    efa_attr->flags & ~flags || efa_attr->comp_cntr_ext_mem.type > EFADV_MEMORY_LOCATION_DMABUF ||
	    efa_attr->err_cntr_ext_mem.type > EFADV_MEMORY_LOCATION_DMABUF)
		return fail(EOPNOTSUPP);
	err = locate(&efa_attr->comp_cntr_ext_mem, efa_attr->flags & EFADV_COMP_CNTR_INIT_WITH_COMP_EXTERNAL_MEM, &completions);
	if (!err)
		err = locate(&efa_attr->err_cntr_ext_mem, efa_attr->flags & EFADV_COMP_CNTR_INIT_WITH_ERR_EXTERNAL_MEM, &errors);
	if (err)
		return fail(err);
	return ops->create_comp_cntr(context, "efadv_create_comp_cntr", attr, completions, errors);
}
