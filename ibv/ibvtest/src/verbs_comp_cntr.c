/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_comp_cntr.c: completion counters, IBVERBS_1.18, with EFA's limits: work requests only, a
 * width that need not be 64 bits, remote operations without errors. verbs_complete.c adds to
 * them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verbs_data.h"

#define MAX_COUNTERS 1024 /* of a device */
#define KNOWN_OPS 0x3f    /* enum ibv_qp_attach_comp_cntr_op */

VERBS_PUBLIC int _ibv_query_comp_cntr_caps(struct ibv_context *context, struct ibv_comp_cntr_caps *caps, size_t size)
{
	struct ibv_comp_cntr_caps c = {.max_counters = MAX_COUNTERS};
	int err = verbs_gate(context, "ibv_query_comp_cntr_caps");
	if (!err && size < sizeof(c))
		err = EINVAL;
	if (!err && verbs_without(context->device->name, "comp_cntr"))
		err = EOPNOTSUPP;
	if (err)
		return err;
	verbs_comp_cntr_limits(context->device->name, &c.max_value, &c.supported_qp_attach_ops);
	memset(caps, 0, size);
	memcpy(caps, &c, sizeof(c));
	return 0;
}

static void release_comp_cntr(struct soft_object *o)
{
	struct soft_comp_cntr *c = RDMA_OUTER(o, struct soft_comp_cntr, object);
	verbs_context_of(c->cntr.context)->device->comp_cntrs--;
	free(c);
}

/* The words are pinned as uverbs does it: 8 bytes that do not cross a boundary of 8. */
static int check(struct ibv_context *context, const struct ibv_comp_cntr_init_attr *a, const uint64_t *completions,
		 const uint64_t *errors)
{
	int err = 0;
	if (verbs_without(context->device->name, "comp_cntr"))
		return EOPNOTSUPP;
	if (a->comp_mask || a->flags || a->type != IBV_COMP_CNTR_TYPE_WRS)
		return EOPNOTSUPP;
	if (((uintptr_t)completions | (uintptr_t)errors) % sizeof(uint64_t))
		return EINVAL;
	if (completions)
		err = verbs_pin(completions, sizeof(*completions), true);
	if (!err && errors)
		err = verbs_pin(errors, sizeof(*errors), true);
	if (err)
		return err;
	return verbs_context_of(context)->device->comp_cntrs == MAX_COUNTERS ? ENOMEM : 0;
}

struct ibv_comp_cntr *verbs_create_comp_cntr(struct ibv_context *context, const char *verb,
					     const struct ibv_comp_cntr_init_attr *attr, uint64_t *completions,
					     uint64_t *errors)
{
	struct soft_comp_cntr *c = NULL;
	uint32_t ops;
	int err = verbs_begin(context, verb);
	if (err)
		return verbs_made(NULL, err);
	err = check(context, attr, completions, errors);
	if (!err && !(c = calloc(1, sizeof(*c))))
		err = ENOMEM;
	if (c) {
		c->cntr.context = context;
		c->cntr.handle = verbs_handle(context);
		verbs_comp_cntr_limits(context->device->name, &c->max, &ops);
		c->completions.word = completions ? completions : &c->own[0];
		c->errors.word = errors ? errors : &c->own[1];
		verbs_context_of(context)->device->comp_cntrs++;
		verbs_adopt(context, &c->object, release_comp_cntr);
	}
	verbs_leave(context);
	return verbs_made(c, err);
}

VERBS_PUBLIC struct ibv_comp_cntr *ibv_create_comp_cntr(struct ibv_context *context, struct ibv_comp_cntr_init_attr *attr)
{
	return verbs_create_comp_cntr(context, "ibv_create_comp_cntr", attr, NULL, NULL);
}

VERBS_PUBLIC int ibv_destroy_comp_cntr(struct ibv_comp_cntr *cntr)
{
	return verbs_destroy(cntr->context, "ibv_destroy_comp_cntr", &((struct soft_comp_cntr *)cntr)->object);
}

enum change { SET, INC };

/* The kernel passes every value to the device, which drops the bits that its counters lack. */
static int change(struct ibv_comp_cntr *cntr, const char *verb, enum change how, bool errors, uint64_t value)
{
	struct soft_comp_cntr *c = (struct soft_comp_cntr *)cntr;
	struct soft_count *count = errors ? &c->errors : &c->completions;
	int err = verbs_begin(cntr->context, verb);
	if (err)
		return err;
	verbs_wire_lock();
	if (c->max < UINT64_MAX)
		value %= c->max + 1;
	if (how == SET)
		verbs_count_set(count, value);
	else
		verbs_count_add(count, value, c->max);
	verbs_wire_unlock();
	verbs_leave(cntr->context);
	return err;
}

/* read_word reads a counter word, which the device writes. As in libefa this is a load: of a device that is
 * gone it returns the last value, without an error. */
static int read_word(struct ibv_comp_cntr *cntr, const char *verb, const struct soft_count *count, uint64_t *value)
{
	int err = verbs_call(cntr->context->device->name, verb);
	if (!err)
		*value = __atomic_load_n(count->word, __ATOMIC_ACQUIRE);
	return err;
}

VERBS_PUBLIC int ibv_set_comp_cntr(struct ibv_comp_cntr *cntr, uint64_t value)
{
	return change(cntr, "ibv_set_comp_cntr", SET, false, value);
}

VERBS_PUBLIC int ibv_set_err_comp_cntr(struct ibv_comp_cntr *cntr, uint64_t value)
{
	return change(cntr, "ibv_set_err_comp_cntr", SET, true, value);
}

VERBS_PUBLIC int ibv_inc_comp_cntr(struct ibv_comp_cntr *cntr, uint64_t amount)
{
	return change(cntr, "ibv_inc_comp_cntr", INC, false, amount);
}

VERBS_PUBLIC int ibv_inc_err_comp_cntr(struct ibv_comp_cntr *cntr, uint64_t amount)
{
	return change(cntr, "ibv_inc_err_comp_cntr", INC, true, amount);
}

VERBS_PUBLIC int ibv_read_comp_cntr(struct ibv_comp_cntr *cntr, uint64_t *value)
{
	return read_word(cntr, "ibv_read_comp_cntr", &((struct soft_comp_cntr *)cntr)->completions, value);
}

VERBS_PUBLIC int ibv_read_err_comp_cntr(struct ibv_comp_cntr *cntr, uint64_t *value)
{
	return read_word(cntr, "ibv_read_err_comp_cntr", &((struct soft_comp_cntr *)cntr)->errors, value);
}

/* The checks are in the order of libibverbs, which drops operations that it does not know and does not look at
 * comp_mask, of the kernel's core, and of the device. */
static int attach(struct soft_qp *q, struct soft_comp_cntr *c, uint32_t ops)
{
	uint32_t has;
	if (c->cntr.context != q->qp.context || !(ops &= KNOWN_OPS))
		return EINVAL;
	for (uint32_t left = ops; left; left &= left - 1)
		if (q->counters[__builtin_ctz(left)])
			return EBUSY;
	verbs_comp_cntr_limits(q->qp.context->device->name, &(uint64_t){0}, &has);
	if (ops & ~has)
		return ENOTSUP;
	if (q->card.state != IBV_QPS_RESET && q->card.state != IBV_QPS_INIT)
		return EINVAL;
	for (uint32_t left = ops; left; left &= left - 1) {
		q->counters[__builtin_ctz(left)] = c;
		c->object.users++;
	}
	return 0;
}

/* There is no detach: the end of the queue pair is it. */
VERBS_PUBLIC int ibv_qp_attach_comp_cntr(struct ibv_qp *qp, struct ibv_comp_cntr *cntr,
					 struct ibv_qp_attach_comp_cntr_attr *attr)
{
	int err = verbs_begin(qp->context, "ibv_qp_attach_comp_cntr");
	if (err)
		return err;
	verbs_wire_lock();
	err = attach((struct soft_qp *)qp, (struct soft_comp_cntr *)cntr, attr->op_mask);
	verbs_wire_unlock();
	verbs_leave(qp->context);
	return err;
}
