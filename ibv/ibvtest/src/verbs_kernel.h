/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_kernel.h: the uverbs kernel in software, as the other files of the library use it. */
#ifndef FLOWTALLY_IBVTEST_VERBS_KERNEL_H
#define FLOWTALLY_IBVTEST_VERBS_KERNEL_H

#include <errno.h>
#include <string.h>

#include "kernel_call.h"
#include "verbs_soft.h"

extern const struct uv_driver verbs_driver; /* verbs_driver.c */
void verbs_kernel_name(struct soft_device *device); /* of a new device, which has its name */
int verbs_kernel_open(struct soft_context *context); /* sets its async_fd */
void verbs_kernel_devx(struct soft_context *context); /* the context may use DevX */
void verbs_kernel_close(struct soft_context *context); /* locked */
bool verbs_kernel_obey(struct soft_device *device, const char *word); /* uv_device_obey */

/* The lock is not held. */
int verbs_kernel_call(struct ibv_context *context, struct kernel_call *call);
/* The ends of verbs that make and destroy objects. No lock is held. A new object has size zeroed bytes; NULL: no memory.
 * verbs_make calls the kernel unless err is set, keeps the object in its context, and returns it; or it frees the object and
 * returns NULL and errno. release, if set, frees the memory that the object refers to. */
void *verbs_new(size_t size);
void *verbs_make(struct ibv_context *context, void *object, int err, struct kernel_call *call, void (*release)(void *object));
/* The method has a handle. The kernel refuses it (EBUSY) while another object uses the object. */
int verbs_destroy(struct ibv_context *context, const char *verb, void *object, uint16_t type, uint16_t method, uint16_t id,
		  uint64_t handle);

/* verbs_flow.c: the flow that a call makes, without its handle: NULL and errno. */
struct ibv_flow *verbs_make_flow(struct ibv_context *context, struct kernel_call *call);

#endif
