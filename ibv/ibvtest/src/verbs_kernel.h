/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_kernel.h: the uverbs kernel in software, as the other files of the library use it. */
#ifndef FLOWTALLY_IBVTEST_VERBS_KERNEL_H
#define FLOWTALLY_IBVTEST_VERBS_KERNEL_H

#include <errno.h>
#include <string.h>

#include "kernel_call.h"
#include "verbs_soft.h"

void verbs_kernel_name(struct soft_device *device); /* of a new device, which has its name */
int verbs_kernel_open(struct soft_context *context); /* sets its async_fd */
void verbs_kernel_devx(struct soft_context *context); /* the context may use DevX */
void verbs_kernel_close(struct soft_context *context); /* locked */
bool verbs_kernel_obey(struct soft_device *device, const char *word); /* uv_device_obey */

/* The lock is not held. */
int verbs_kernel_call(struct ibv_context *context, struct kernel_call *call);
/* A method that destroys an object. */
int verbs_kernel_destroy(struct ibv_context *context, uint16_t object, uint16_t method, uint16_t id, uint64_t handle);

/* verbs_flow.c: the flow that a call makes, without its handle: NULL and errno. */
struct ibv_flow *verbs_make_flow(struct ibv_context *context, struct kernel_call *call);

/* The kernel's object of a queue, which has its context, and its handle. false: no memory. Locked. */
struct soft_cq;
struct soft_qp;
bool verbs_kernel_cq(struct soft_cq *cq);
bool verbs_kernel_qp(struct soft_qp *qp);

#endif
