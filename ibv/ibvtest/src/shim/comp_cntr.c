/* SPDX-License-Identifier: Apache-2.0
 *
 * comp_cntr.c: completion counters (IBVERBS_1.18, EFA_1.7), as libibverbs and libefa of rdma-core 65 call the kernel. The
 * kernel's driver counts in words that it is given, and a read is a load of the word. */
#include <stddef.h>

#include "../uverbs/efa_abi_kernel.h"
#include "shim.h"

#define KNOWN_OPS 0x3f /* enum ibv_qp_attach_comp_cntr_op */

/* <infiniband/efadv.h> of rdma-core 65, which distributions do not have yet. The declarations are written independently of
 * ibv/efa_abi.h, so that an error in one of the two makes the tests between them fail. */
enum { EFADV_MEMORY_LOCATION_VA, EFADV_MEMORY_LOCATION_DMABUF };
enum { EFADV_COMP_CNTR_INIT_WITH_COMP_EXTERNAL_MEM = 1 << 0, EFADV_COMP_CNTR_INIT_WITH_ERR_EXTERNAL_MEM = 1 << 1 };

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

struct efadv_comp_cntr_init_attr {
	uint64_t comp_mask;
	uint32_t flags;
	uint32_t reserved;
	struct efadv_memory_location comp_cntr_ext_mem;
	struct efadv_memory_location err_cntr_ext_mem;
};

_Static_assert(sizeof(struct efadv_memory_location) == 32 && offsetof(struct efadv_memory_location, type) == 24, "padded");
_Static_assert(sizeof(struct efadv_comp_cntr_init_attr) == 80, "padded");

struct counter {
	struct ibv_comp_cntr cntr;
	const uint64_t *word[2]; /* of completions, of errors */
	uint64_t own[2];         /* the words, unless they are the caller's */
};

__attribute__((constructor)) static void tell(void)
{
	if (uverbs_shimmed)
		uverbs_shimmed();
}

/* The kernel has both drivers, by the beginning of a device's name. */
#define CALL(context, object, method)                                                                                 \
	KERNEL_CALL(strncmp((context)->device->name, "efa", 3) ? RDMA_DRIVER_MLX5 : RDMA_DRIVER_EFA, object, method)

SHIM_PUBLIC int _ibv_query_comp_cntr_caps(struct ibv_context *context, struct ibv_comp_cntr_caps *caps, size_t size)
{
	struct kernel_call call = CALL(context, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_COMP_CNTR_CAPS);
	struct ibv_comp_cntr_caps c;
	int err = shim_verb(context, "ibv_query_comp_cntr_caps");
	memset(caps, 0, size); /* as the real one: also where the call fails */
	kernel_out(&call, UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_MAX_COUNTERS, &c.max_counters, sizeof(c.max_counters));
	kernel_out(&call, UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_MAX_VALUE, &c.max_value, sizeof(c.max_value));
	kernel_out(&call, UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_SUPPORTED_QP_ATTACH_OPS, &c.supported_qp_attach_ops,
		   sizeof(c.supported_qp_attach_ops));
	if (!err)
		err = size < sizeof(c) ? EINVAL : shim_ioctl(context, &call);
	if (!err)
		memcpy(caps, &c, sizeof(c));
	return err;
}

/* Memory of the caller for the two words. NULL: the word is the library's own. */
static struct ibv_comp_cntr *create(struct ibv_context *context, const struct ibv_comp_cntr_init_attr *attr,
				    const struct efadv_memory_location *const memory[2])
{
	struct kernel_call call = CALL(context, UVERBS_OBJECT_COMP_CNTR, UVERBS_METHOD_COMP_CNTR_CREATE);
	uint64_t *handle = kernel_object(&call, UVERBS_ATTR_CREATE_COMP_CNTR_HANDLE, 0);
	struct ib_uverbs_buffer_desc buffers[2];
	struct counter *c = calloc(1, sizeof(*c));
	if (!c)
		return shim_fail(ENOMEM);
	for (int i = 0; i < 2; i++) {
		const struct efadv_memory_location *m = memory[i];
		c->word[i] = m ? (const uint64_t *)(void *)m->ptr : &c->own[i];
		buffers[i] = (struct ib_uverbs_buffer_desc){.type = IB_UVERBS_BUFFER_TYPE_VA, .addr = (uintptr_t)c->word[i], .length = 8};
		if (m && m->type == EFADV_MEMORY_LOCATION_DMABUF)
			buffers[i] = (struct ib_uverbs_buffer_desc){.type = IB_UVERBS_BUFFER_TYPE_DMABUF, .fd = m->dmabuf.fd,
								    .addr = m->dmabuf.offset, .length = 8};
		kernel_in(&call, EFA_IB_ATTR_CREATE_COMP_CNTR_COMP_BUFFER + i, &buffers[i], sizeof(buffers[i]));
	}
	bool known = !attr->comp_mask && !attr->flags && attr->type == IBV_COMP_CNTR_TYPE_WRS;
	int err = known ? shim_ioctl(context, &call) : EOPNOTSUPP;
	if (err) {
		free(c);
		return shim_fail(err);
	}
	c->cntr = (struct ibv_comp_cntr){.context = context, .handle = *handle};
	return &c->cntr;
}

SHIM_PUBLIC struct ibv_comp_cntr *ibv_create_comp_cntr(struct ibv_context *context, struct ibv_comp_cntr_init_attr *attr)
{
	int err = shim_verb(context, "ibv_create_comp_cntr");
	return err ? shim_fail(err) : create(context, attr, (const struct efadv_memory_location *[2]){NULL, NULL});
}

/* A caller of a later libefa may pass a longer struct, if the rest is 0. */
static bool fits(const struct efadv_comp_cntr_init_attr *a, uint32_t length)
{
	const uint8_t *bytes = (const uint8_t *)a;
	bool zero = length >= sizeof(*a);
	for (size_t i = sizeof(*a); zero && i < length; i++)
		zero = !bytes[i];
	return zero;
}

SHIM_PUBLIC struct ibv_comp_cntr *efadv_create_comp_cntr(struct ibv_context *context, struct ibv_comp_cntr_init_attr *attr,
							 struct efadv_comp_cntr_init_attr *efa, uint32_t inlen)
{
	const uint32_t flags = EFADV_COMP_CNTR_INIT_WITH_COMP_EXTERNAL_MEM | EFADV_COMP_CNTR_INIT_WITH_ERR_EXTERNAL_MEM;
	const struct efadv_memory_location *memory[2] = {NULL, NULL};
	int err = shim_verb(context, "efadv_create_comp_cntr");
	if (!err && shim_without(context, "efadv"))
		err = EOPNOTSUPP;
	if (!err && !fits(efa, inlen))
		err = EINVAL;
	if (!err && (efa->comp_mask || efa->flags & ~flags || efa->comp_cntr_ext_mem.type > EFADV_MEMORY_LOCATION_DMABUF ||
		     efa->err_cntr_ext_mem.type > EFADV_MEMORY_LOCATION_DMABUF))
		err = EOPNOTSUPP;
	if (err)
		return shim_fail(err);
	if (efa->flags & EFADV_COMP_CNTR_INIT_WITH_COMP_EXTERNAL_MEM)
		memory[0] = &efa->comp_cntr_ext_mem;
	if (efa->flags & EFADV_COMP_CNTR_INIT_WITH_ERR_EXTERNAL_MEM)
		memory[1] = &efa->err_cntr_ext_mem;
	return create(context, attr, memory);
}

SHIM_PUBLIC int ibv_destroy_comp_cntr(struct ibv_comp_cntr *cntr)
{
	struct kernel_call call = CALL(cntr->context, UVERBS_OBJECT_COMP_CNTR, UVERBS_METHOD_COMP_CNTR_DESTROY);
	int err = shim_verb(cntr->context, "ibv_destroy_comp_cntr");
	kernel_object(&call, UVERBS_ATTR_DESTROY_COMP_CNTR_HANDLE, cntr->handle);
	if (!err)
		err = shim_ioctl(cntr->context, &call);
	if (!err)
		free(cntr);
	return err;
}

static int change(struct ibv_comp_cntr *cntr, const char *verb, unsigned entry, unsigned op, uint64_t value)
{
	struct kernel_call call = CALL(cntr->context, UVERBS_OBJECT_COMP_CNTR, UVERBS_METHOD_COMP_CNTR_MODIFY);
	int err = shim_verb(cntr->context, verb);
	kernel_object(&call, UVERBS_ATTR_MODIFY_COMP_CNTR_HANDLE, cntr->handle);
	kernel_number(&call, UVERBS_ATTR_MODIFY_COMP_CNTR_ENTRY, entry);
	kernel_number(&call, UVERBS_ATTR_MODIFY_COMP_CNTR_OP, op);
	kernel_number(&call, UVERBS_ATTR_MODIFY_COMP_CNTR_VALUE, value);
	return err ? err : shim_ioctl(cntr->context, &call);
}

/* Of a device that is gone it returns the last value, without an error. */
static int read_word(struct ibv_comp_cntr *cntr, const char *verb, unsigned entry, uint64_t *value)
{
	int err = shim_verb(cntr->context, verb);
	if (!err)
		*value = __atomic_load_n(((struct counter *)cntr)->word[entry], __ATOMIC_ACQUIRE);
	return err;
}

#define CHANGES(name, entry, op)                                                                                      \
	SHIM_PUBLIC int name(struct ibv_comp_cntr *cntr, uint64_t value) { return change(cntr, #name, entry, op, value); }
#define READS(name, entry)                                                                                            \
	SHIM_PUBLIC int name(struct ibv_comp_cntr *cntr, uint64_t *value) { return read_word(cntr, #name, entry, value); }
CHANGES(ibv_set_comp_cntr, IB_UVERBS_COMP_CNTR_ENTRY_COMP, IB_UVERBS_COMP_CNTR_MODIFY_OP_SET)
CHANGES(ibv_set_err_comp_cntr, IB_UVERBS_COMP_CNTR_ENTRY_ERR, IB_UVERBS_COMP_CNTR_MODIFY_OP_SET)
CHANGES(ibv_inc_comp_cntr, IB_UVERBS_COMP_CNTR_ENTRY_COMP, IB_UVERBS_COMP_CNTR_MODIFY_OP_INC)
CHANGES(ibv_inc_err_comp_cntr, IB_UVERBS_COMP_CNTR_ENTRY_ERR, IB_UVERBS_COMP_CNTR_MODIFY_OP_INC)
READS(ibv_read_comp_cntr, IB_UVERBS_COMP_CNTR_ENTRY_COMP)
READS(ibv_read_err_comp_cntr, IB_UVERBS_COMP_CNTR_ENTRY_ERR)

/* libibverbs drops operations that it does not know and does not look at comp_mask. There is no detach: the end of the
 * queue pair is it. */
SHIM_PUBLIC int ibv_qp_attach_comp_cntr(struct ibv_qp *qp, struct ibv_comp_cntr *cntr, struct ibv_qp_attach_comp_cntr_attr *attr)
{
	struct kernel_call call = CALL(qp->context, UVERBS_OBJECT_QP, UVERBS_METHOD_QP_ATTACH_COMP_CNTR);
	uint32_t ops = attr->op_mask & KNOWN_OPS;
	int err = shim_verb(qp->context, "ibv_qp_attach_comp_cntr");
	kernel_object(&call, UVERBS_ATTR_QP_ATTACH_COMP_CNTR_HANDLE, qp->handle);
	kernel_object(&call, UVERBS_ATTR_QP_ATTACH_COMP_CNTR_CNTR_HANDLE, cntr->handle);
	kernel_in(&call, UVERBS_ATTR_QP_ATTACH_COMP_CNTR_OP_MASK, &ops, sizeof(ops));
	return err ? err : shim_ioctl(qp->context, &call);
}
