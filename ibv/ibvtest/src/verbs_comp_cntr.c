/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_comp_cntr.c: completion counters, IBVERBS_1.18, as libibverbs and libefa call the kernel. The kernel's driver is
 * EFA's (uverbs/efa_ib_comp_cntr.c): it counts in words that it is given, and a read is a load of the word. */
#include <errno.h>
#include <string.h>

#include "nic_device.h"
#include "uverbs/efa_abi_kernel.h"
#include "verbs_data.h"
#include "verbs_kernel.h"

#define KNOWN_OPS 0x3f /* enum ibv_qp_attach_comp_cntr_op */

struct soft_comp_cntr {
	struct ibv_comp_cntr cntr;
	const uint64_t *word[2]; /* of completions, of errors */
	uint64_t own[2];         /* the words, unless they are the caller's */
};

VERBS_PUBLIC int _ibv_query_comp_cntr_caps(struct ibv_context *context, struct ibv_comp_cntr_caps *caps, size_t size)
{
	struct kernel_call call = KERNEL_CALL(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_COMP_CNTR_CAPS);
	struct ibv_comp_cntr_caps c;
	int err = verbs_gate(context, "ibv_query_comp_cntr_caps");
	memset(caps, 0, size); /* as the real one: also where the call fails */
	kernel_out(&call, UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_MAX_COUNTERS, &c.max_counters, sizeof(c.max_counters));
	kernel_out(&call, UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_MAX_VALUE, &c.max_value, sizeof(c.max_value));
	kernel_out(&call, UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_SUPPORTED_QP_ATTACH_OPS, &c.supported_qp_attach_ops,
		   sizeof(c.supported_qp_attach_ops));
	if (!err && size < sizeof(c))
		err = EINVAL;
	if (!err)
		err = verbs_kernel_call(context, &call);
	if (err)
		return err;
	memcpy(caps, &c, sizeof(c));
	return 0;
}

struct ibv_comp_cntr *verbs_create_comp_cntr(struct ibv_context *context, const char *verb,
					     const struct ibv_comp_cntr_init_attr *attr, const struct ibvtest_word *words)
{
	struct kernel_call call = KERNEL_CALL(UVERBS_OBJECT_COMP_CNTR, UVERBS_METHOD_COMP_CNTR_CREATE);
	uint64_t *handle = kernel_object(&call, UVERBS_ATTR_CREATE_COMP_CNTR_HANDLE, 0);
	struct ib_uverbs_buffer_desc buffers[2];
	struct soft_comp_cntr *c = verbs_new(sizeof(*c));
	int err = verbs_gate(context, verb);
	if (!err && (attr->comp_mask || attr->flags || attr->type != IBV_COMP_CNTR_TYPE_WRS))
		err = EOPNOTSUPP;
	for (int i = 0; c && i < 2; i++) {
		bool external = words && words[i].buffer.length;
		c->word[i] = external ? words[i].at : &c->own[i];
		buffers[i] = external ? words[i].buffer
				      : (struct ib_uverbs_buffer_desc){.type = IB_UVERBS_BUFFER_TYPE_VA, .addr = (uintptr_t)&c->own[i],
								       .length = sizeof(c->own[i])};
		kernel_in(&call, EFA_IB_ATTR_CREATE_COMP_CNTR_COMP_BUFFER + i, &buffers[i], sizeof(buffers[i]));
	}
	if ((c = verbs_make(context, c, err, &call, NULL)))
		c->cntr = (struct ibv_comp_cntr){.context = context, .handle = *handle};
	return (struct ibv_comp_cntr *)c;
}

VERBS_PUBLIC struct ibv_comp_cntr *ibv_create_comp_cntr(struct ibv_context *context, struct ibv_comp_cntr_init_attr *attr)
{
	return verbs_create_comp_cntr(context, "ibv_create_comp_cntr", attr, NULL);
}

VERBS_PUBLIC int ibv_destroy_comp_cntr(struct ibv_comp_cntr *cntr)
{
	return verbs_destroy(cntr->context, "ibv_destroy_comp_cntr", cntr, UVERBS_OBJECT_COMP_CNTR, UVERBS_METHOD_COMP_CNTR_DESTROY,
			     UVERBS_ATTR_DESTROY_COMP_CNTR_HANDLE, cntr->handle);
}

static int change(struct ibv_comp_cntr *cntr, const char *verb, unsigned entry, unsigned op, uint64_t value)
{
	struct kernel_call call = KERNEL_CALL(UVERBS_OBJECT_COMP_CNTR, UVERBS_METHOD_COMP_CNTR_MODIFY);
	int err = verbs_gate(cntr->context, verb);
	kernel_object(&call, UVERBS_ATTR_MODIFY_COMP_CNTR_HANDLE, cntr->handle);
	kernel_number(&call, UVERBS_ATTR_MODIFY_COMP_CNTR_ENTRY, entry);
	kernel_number(&call, UVERBS_ATTR_MODIFY_COMP_CNTR_OP, op);
	kernel_number(&call, UVERBS_ATTR_MODIFY_COMP_CNTR_VALUE, value);
	return err ? err : verbs_kernel_call(cntr->context, &call);
}

/* Of a device that is gone it returns the last value, without an error. */
static int read_word(struct ibv_comp_cntr *cntr, const char *verb, unsigned entry, uint64_t *value)
{
	int err = verbs_call(cntr->context->device->name, verb);
	if (!err)
		*value = __atomic_load_n(((struct soft_comp_cntr *)cntr)->word[entry], __ATOMIC_ACQUIRE);
	return err;
}

#define CHANGES(name, entry, op)                                                                                      \
	VERBS_PUBLIC int name(struct ibv_comp_cntr *cntr, uint64_t value) { return change(cntr, #name, entry, op, value); }
#define READS(name, entry)                                                                                            \
	VERBS_PUBLIC int name(struct ibv_comp_cntr *cntr, uint64_t *value) { return read_word(cntr, #name, entry, value); }
CHANGES(ibv_set_comp_cntr, IB_UVERBS_COMP_CNTR_ENTRY_COMP, IB_UVERBS_COMP_CNTR_MODIFY_OP_SET)
CHANGES(ibv_set_err_comp_cntr, IB_UVERBS_COMP_CNTR_ENTRY_ERR, IB_UVERBS_COMP_CNTR_MODIFY_OP_SET)
CHANGES(ibv_inc_comp_cntr, IB_UVERBS_COMP_CNTR_ENTRY_COMP, IB_UVERBS_COMP_CNTR_MODIFY_OP_INC)
CHANGES(ibv_inc_err_comp_cntr, IB_UVERBS_COMP_CNTR_ENTRY_ERR, IB_UVERBS_COMP_CNTR_MODIFY_OP_INC)
READS(ibv_read_comp_cntr, IB_UVERBS_COMP_CNTR_ENTRY_COMP)
READS(ibv_read_err_comp_cntr, IB_UVERBS_COMP_CNTR_ENTRY_ERR)

/* libibverbs drops operations that it does not know and does not look at comp_mask. There is no detach: the end of the
 * queue pair is it. */
VERBS_PUBLIC int ibv_qp_attach_comp_cntr(struct ibv_qp *qp, struct ibv_comp_cntr *cntr,
					 struct ibv_qp_attach_comp_cntr_attr *attr)
{
	struct kernel_call call = KERNEL_CALL(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_ATTACH_COMP_CNTR);
	uint32_t ops = attr->op_mask & KNOWN_OPS;
	int err = verbs_gate(qp->context, "ibv_qp_attach_comp_cntr");
	if (!err && cntr->context != qp->context)
		err = EINVAL;
	kernel_object(&call, UVERBS_ATTR_QP_ATTACH_COMP_CNTR_HANDLE, qp->handle);
	kernel_object(&call, UVERBS_ATTR_QP_ATTACH_COMP_CNTR_CNTR_HANDLE, cntr->handle);
	kernel_in(&call, UVERBS_ATTR_QP_ATTACH_COMP_CNTR_OP_MASK, &ops, sizeof(ops));
	return err ? err : verbs_kernel_call(qp->context, &call);
}
