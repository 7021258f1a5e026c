/* SPDX-License-Identifier: Apache-2.0
 *
 * kernel_call.h: one call of RDMA_VERBS_IOCTL, built attribute by attribute as libibverbs and libmlx5 build it. */
#ifndef IBVTEST_KERNEL_CALL_H
#define IBVTEST_KERNEL_CALL_H

#include "../uverbs/uverbs_abi.h"

struct kernel_call {
	struct ib_uverbs_ioctl_hdr header;
	struct ib_uverbs_attr attr[8];
	int err; /* of building: the call is not made */
};

#define KERNEL_CALL(driver, object, method)                                                                           \
	{.header = {.object_id = (object), .method_id = (method), .driver_id = (driver)}}

static inline struct ib_uverbs_attr *kernel_attr(struct kernel_call *c, uint16_t id, size_t length, uint64_t data)
{
	struct ib_uverbs_attr *a = &c->attr[c->header.num_attrs++];
	*a = (struct ib_uverbs_attr){.attr_id = id, .len = length, .flags = UVERBS_ATTR_F_MANDATORY, .data = data};
	if (length > UINT16_MAX)
		c->err = EINVAL;
	return a;
}

/* An input of at most 8 bytes lies in the attribute. */
static inline void kernel_in(struct kernel_call *c, uint16_t id, const void *from, size_t n)
{
	struct ib_uverbs_attr *a = kernel_attr(c, id, n, (uintptr_t)from);
	if (n <= sizeof(a->data)) {
		a->data = 0;
		memcpy(&a->data, from, n);
	}
}

static inline void kernel_out(struct kernel_call *c, uint16_t id, void *to, size_t n)
{
	kernel_attr(c, id, n, (uintptr_t)to);
}

static inline void kernel_number(struct kernel_call *c, uint16_t id, uint64_t value)
{
	kernel_attr(c, id, sizeof(value), value);
}

/* A handle: of an object that exists, or, after the call, of the object that it made. */
static inline uint64_t *kernel_object(struct kernel_call *c, uint16_t id, uint64_t handle)
{
	return &kernel_attr(c, id, 0, handle)->data;
}

#endif
