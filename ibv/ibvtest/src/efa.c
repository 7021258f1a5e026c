/* SPDX-License-Identifier: Apache-2.0
 *
 * efa.c: the software libefa.so.1: completion counters in memory of the application
 * (efadv_create_comp_cntr(3)). It refuses the same calls as libefa of rdma-core 65. The kernel in libibverbs refuses
 * memory that is not mapped, or not 8 bytes at a multiple of 8. */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

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

/* The word of one side, for the kernel. */
static struct ibvtest_word locate(const struct efadv_memory_location *m, bool external)
{
	bool dmabuf = m->type == EFADV_MEMORY_LOCATION_DMABUF;
	return (struct ibvtest_word){.buffer = {.type = dmabuf ? IB_UVERBS_BUFFER_TYPE_DMABUF : IB_UVERBS_BUFFER_TYPE_VA,
						.fd = dmabuf ? m->dmabuf.fd : 0,
						.addr = dmabuf ? m->dmabuf.offset : (uintptr_t)m->ptr,
						.length = external ? sizeof(uint64_t) : 0},
				     .at = (const uint64_t *)(void *)m->ptr};
}

struct ibv_comp_cntr *efadv_create_comp_cntr(struct ibv_context *context, struct ibv_comp_cntr_init_attr *attr,
					     struct efadv_comp_cntr_init_attr *efa_attr, uint32_t inlen)
{
	const uint32_t flags = EFADV_COMP_CNTR_INIT_WITH_COMP_EXTERNAL_MEM | EFADV_COMP_CNTR_INIT_WITH_ERR_EXTERNAL_MEM;
	const struct ibvtest_device_ops *ops = provider_ops(context->device);

	if (!ops || !ops->offers_external || !ops->offers_external(context->device))
		return fail(EOPNOTSUPP);
	if (!known(efa_attr, inlen))
		return fail(EINVAL);
	if (efa_attr->comp_mask || efa_attr->flags & ~flags || efa_attr->comp_cntr_ext_mem.type > EFADV_MEMORY_LOCATION_DMABUF ||
	    efa_attr->err_cntr_ext_mem.type > EFADV_MEMORY_LOCATION_DMABUF)
		return fail(EOPNOTSUPP);
	return ops->create_comp_cntr(
		context, "efadv_create_comp_cntr", attr,
		(struct ibvtest_word[]){
			locate(&efa_attr->comp_cntr_ext_mem, efa_attr->flags & EFADV_COMP_CNTR_INIT_WITH_COMP_EXTERNAL_MEM),
			locate(&efa_attr->err_cntr_ext_mem, efa_attr->flags & EFADV_COMP_CNTR_INIT_WITH_ERR_EXTERNAL_MEM)});
}
