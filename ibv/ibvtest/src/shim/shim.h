/* SPDX-License-Identifier: Apache-2.0
 *
 * shim.h: what the files of the shim have in common. The shim is a library that a test names in place of libibverbs,
 * libmlx5 and libefa. It depends on the host's, so dlsym finds in it the few verbs that it exports and behind it all
 * others. Its verbs do what no kernel can cause: they fail without a call, or are those of a later release. */
#ifndef IBVTEST_SHIM_H
#define IBVTEST_SHIM_H

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "kernel_call.h"
#include "verbs_abi.h"

#define SHIM_PUBLIC __attribute__((visibility("default")))

/* Of the uverbs kernel that is preloaded (uverbs/uverbs_preload.c). */
int uverbs_verb(const char *device, const char *verb) __attribute__((weak));
void uverbs_shimmed(void) __attribute__((weak));
bool uverbs_without(const char *device, const char *ability) __attribute__((weak));

static inline int shim_verb(const struct ibv_context *context, const char *verb)
{
	return uverbs_verb ? uverbs_verb(context ? context->device->name : "", verb) : 0;
}

static inline bool shim_without(const struct ibv_context *context, const char *ability)
{
	return uverbs_without && uverbs_without(context->device->name, ability);
}

/* The end of a verb that makes an object. */
static inline void *shim_fail(int err)
{
	errno = err;
	return NULL;
}

/* A call of the kernel. Returns an errno. */
static inline int shim_ioctl(const struct ibv_context *context, struct kernel_call *call)
{
	if (call->err)
		return call->err;
	call->header.length = sizeof(call->header) + call->header.num_attrs * sizeof(call->attr[0]);
	return ioctl(context->cmd_fd, RDMA_VERBS_IOCTL, call) ? errno : 0;
}

/* The symbol of a real library, which is loaded. */
static inline void *shim_real(const char *soname, const char *name)
{
	void *library = dlopen(soname, RTLD_NOW | RTLD_NOLOAD);
	void *symbol = library ? dlsym(library, name) : NULL;
	if (!symbol)
		abort();
	dlclose(library);
	return symbol;
}
#define SHIM_REAL(soname, verb) ((__typeof__(verb) *)shim_real(soname, #verb))

#endif
