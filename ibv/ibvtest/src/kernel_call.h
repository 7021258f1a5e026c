/* SPDX-License-Identifier: Apache-2.0
 *
 * kernel_call.h: one call of RDMA_VERBS_IOCTL, built attribute by attribute as libibverbs and libmlx5 build it. The
 * uverbs kernel (uverbs/) in libibverbs.so.1 serves it. */
#ifndef IBVTEST_KERNEL_CALL_H
#define IBVTEST_KERNEL_CALL_H

#include "uverbs/uverbs_abi.h"

struct kernel_call {
	struct ib_uverbs_ioctl_hdr header;
	struct ib_uverbs_attr attr[12];
	int err; /* of building: the call is not made */
};

#define KERNEL_CALL(object, method) {.header = {.object_id = (object), .method_id = (method), .driver_id = RDMA_DRIVER_MLX5}}

static inline struct ib_uverbs_attr *kernel_attr(struct kernel_call *c, uint16_t id, size_t length, uint64_t data)
{
	struct ib_uverbs_attr *a = &c->attr[c->header.num_attrs++];
	*a = (struct ib_uverbs_attr){.attr_id = id, .len = length, .flags = UVERBS_ATTR_F_MANDATORY, .data = data};
	if (length > UINT16_MAX)
		c->err = EINVAL;
	return a;
}

/* An input of at most 8 bytes lies in the attribute. */
static inline struct ib_uverbs_attr *kernel_in(struct kernel_call *c, uint16_t id, const void *from, size_t n)
{
	struct ib_uverbs_attr *a = kernel_attr(c, id, n, (uintptr_t)from);
	if (n <= sizeof(a->data)) {
		a->data = 0;
		memcpy(&a->data, from, n);
	}
	return a;
}

static inline void kernel_out(struct kernel_call *c, uint16_t id, void *to, size_t n)
{
	kernel_attr(c, id, n, (uintptr_t)to);
}

static inline void kernel_number(struct kernel_call *c, uint16_t id, uint64_t value)
{
	kernel_attr(c, id, sizeof(value), value);
}

/* A command of INVOKE_WRITE. */
#define KERNEL_COMMAND KERNEL_CALL(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE)
static inline void kernel_command(struct kernel_call *c, uint64_t cmd, const void *in, size_t inlen, void *out, size_t outlen)
{
	kernel_number(c, UVERBS_ATTR_WRITE_CMD, cmd);
	kernel_in(c, UVERBS_ATTR_CORE_IN, in, inlen);
	kernel_out(c, UVERBS_ATTR_CORE_OUT, out, outlen);
}

/* A handle or a descriptor: of an object that exists, or, after the call, of the object that it made. */
static inline uint64_t *kernel_object(struct kernel_call *c, uint16_t id, uint64_t handle)
{
	return &kernel_attr(c, id, 0, handle)->data;
}

#endif
