/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_kernel.h: the uverbs kernel in software, as the other files of the library use it. Its lock is taken under a
 * device's lock or without one. */
#ifndef FLOWTALLY_IBVTEST_VERBS_KERNEL_H
#define FLOWTALLY_IBVTEST_VERBS_KERNEL_H

#include <errno.h>
#include <string.h>

#include "kernel_call.h"
#include "verbs_soft.h"

void verbs_kernel_name(struct soft_device *device); /* of a new device, which has its name */
int verbs_kernel_open(struct soft_context *context);
void verbs_kernel_devx(struct soft_context *context); /* the context may use DevX */
void verbs_kernel_close(struct soft_context *context);
void verbs_kernel_lose(struct soft_device *device);

/* No lock of the kernel is held. */
int verbs_kernel_call(struct ibv_context *context, struct kernel_call *call);
/* A method that destroys an object. */
int verbs_kernel_destroy(struct ibv_context *context, uint16_t object, uint16_t method, uint16_t id, uint64_t handle);

/* verbs_flow.c: the flow that a call makes, without its handle: NULL and errno. */
struct ibv_flow *verbs_make_flow(struct ibv_context *context, struct kernel_call *call);

/* The object of a queue pair, for flows. NULL: no memory. Ending it is EBUSY while a flow uses it. */
struct uv_qp *verbs_kernel_qp(struct ibv_context *context, uint32_t type);
int verbs_kernel_qp_end(struct ibv_context *context, struct uv_qp *qp);

#endif
