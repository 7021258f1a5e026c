/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_memory.c: protection domains, memory regions and address handles. */
#include <string.h>

#include "verbs_data.h"
#include "verbs_kernel.h"

VERBS_PUBLIC struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct kernel_call call = KERNEL_COMMAND;
	struct ib_uverbs_alloc_pd cmd = {0};
	struct ib_uverbs_alloc_pd_resp resp;
	int err = verbs_gate(context, "ibv_alloc_pd");
	kernel_command(&call, IB_USER_VERBS_CMD_ALLOC_PD, &cmd, sizeof(cmd), &resp, sizeof(resp));
	struct ibv_pd *pd = verbs_make(context, verbs_new(sizeof(*pd)), err, &call, NULL);
	if (!pd)
		return NULL;
	pd->context = context;
	pd->handle = resp.pd_handle;
	return pd;
}

VERBS_PUBLIC int ibv_dealloc_pd(struct ibv_pd *pd)
{
	return verbs_destroy(pd->context, "ibv_dealloc_pd", pd, UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY,
			     UVERBS_ATTR_DESTROY_PD_HANDLE, pd->handle);
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	struct kernel_call call = KERNEL_COMMAND;
	struct ib_uverbs_reg_mr cmd = {.start = (uintptr_t)addr, .length = length, .hca_va = iova, .pd_handle = pd->handle,
				       .access_flags = access};
	struct ib_uverbs_reg_mr_resp resp;
	int err = verbs_gate(pd->context, "ibv_reg_mr");
	kernel_command(&call, IB_USER_VERBS_CMD_REG_MR, &cmd, sizeof(cmd), &resp, sizeof(resp));
	struct ibv_mr *mr = verbs_make(pd->context, verbs_new(sizeof(*mr)), err, &call, NULL);
	if (mr)
		*mr = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = addr, .length = length, .handle = resp.mr_handle,
				      .lkey = resp.lkey, .rkey = resp.rkey};
	return mr;
}

/* <infiniband/verbs.h> has macros of these names. */
VERBS_PUBLIC struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return reg_mr(pd, addr, length, (uintptr_t)addr, access);
}

VERBS_PUBLIC struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return reg_mr(pd, addr, length, iova, access);
}

VERBS_PUBLIC struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
					     unsigned int access)
{
	return reg_mr(pd, addr, length, iova, access);
}

VERBS_PUBLIC int ibv_dereg_mr(struct ibv_mr *mr)
{
	return verbs_destroy(mr->context, "ibv_dereg_mr", mr, UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY,
			     UVERBS_ATTR_DESTROY_MR_HANDLE, mr->handle);
}

VERBS_PUBLIC struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct kernel_call call = KERNEL_COMMAND;
	struct ib_uverbs_create_ah cmd = {.pd_handle = pd->handle};
	struct ib_uverbs_create_ah_resp resp;
	int err = verbs_gate(pd->context, "ibv_create_ah");
	_Static_assert(sizeof(cmd.attr) == sizeof(*attr), "the kernel's names its padding");
	memcpy(&cmd.attr, attr, sizeof(*attr));
	kernel_command(&call, IB_USER_VERBS_CMD_CREATE_AH, &cmd, sizeof(cmd), &resp, sizeof(resp));
	struct soft_ah *a = verbs_make(pd->context, verbs_new(sizeof(*a)), err, &call, NULL);
	if (!a)
		return NULL;
	a->ah = (struct ibv_ah){.context = pd->context, .pd = pd, .handle = resp.ah_handle};
	a->attr = *attr;
	return &a->ah;
}

VERBS_PUBLIC int ibv_destroy_ah(struct ibv_ah *ah)
{
	return verbs_destroy(ah->context, "ibv_destroy_ah", ah, UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY,
			     UVERBS_ATTR_DESTROY_AH_HANDLE, ah->handle);
}
