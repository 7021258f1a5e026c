/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_comp_cntr.c: completion counters, IBVERBS_1.18, with EFA's limits: work requests
 * only, a width that is not 64 bits, remote operations without errors. No QP here
 * completes anything, so what is read is what was set and incremented. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verbs_soft.h"

#define MAX_VALUE ((UINT64_C(1) << 48) - 1)
#define MAX_COUNTERS 1024
#define OPS 0x3f

struct soft_comp_cntr {
	struct ibv_comp_cntr cntr;
	struct soft_object object; /* users: attachments to QPs */
	uint64_t value, errors;
};

VERBS_PUBLIC int _ibv_query_comp_cntr_caps(struct ibv_context *context, struct ibv_comp_cntr_caps *caps, size_t size)
{
	struct ibv_comp_cntr_caps c = {MAX_VALUE, MAX_COUNTERS, OPS};
	int err = verbs_gate(context, "ibv_query_comp_cntr_caps");
	if (!err && verbs_without(context->device->name, "comp_cntr"))
		err = EOPNOTSUPP;
	if (err)
		return err;
	memset(caps, 0, size);
	memcpy(caps, &c, size < sizeof(c) ? size : sizeof(c));
	return 0;
}

static void release_comp_cntr(struct soft_object *o)
{
	struct soft_comp_cntr *c = VERBS_OUTER(o, struct soft_comp_cntr, object);
	verbs_context_of(c->cntr.context)->comp_cntrs--;
	free(c);
}

static int check(struct ibv_context *context, const struct ibv_comp_cntr_init_attr *a)
{
	if (verbs_without(context->device->name, "comp_cntr"))
		return EOPNOTSUPP;
	if (a->comp_mask || a->flags || a->type > IBV_COMP_CNTR_TYPE_BYTES)
		return EINVAL;
	if (a->type != IBV_COMP_CNTR_TYPE_WRS)
		return EOPNOTSUPP;
	return verbs_context_of(context)->comp_cntrs == MAX_COUNTERS ? ENOMEM : 0;
}

VERBS_PUBLIC struct ibv_comp_cntr *ibv_create_comp_cntr(struct ibv_context *context, struct ibv_comp_cntr_init_attr *attr)
{
	struct soft_comp_cntr *c = NULL;
	int err = verbs_begin(context, "ibv_create_comp_cntr");
	if (err)
		return verbs_made(NULL, err);
	err = check(context, attr);
	if (!err && !(c = calloc(1, sizeof(*c))))
		err = ENOMEM;
	if (c) {
		c->cntr.context = context;
		c->cntr.handle = verbs_handle(context);
		verbs_context_of(context)->comp_cntrs++;
		verbs_adopt(context, &c->object, release_comp_cntr);
	}
	verbs_leave(context);
	return verbs_made(c, err);
}

VERBS_PUBLIC int ibv_destroy_comp_cntr(struct ibv_comp_cntr *cntr)
{
	return verbs_destroy(cntr->context, "ibv_destroy_comp_cntr", &((struct soft_comp_cntr *)cntr)->object);
}

/* One of the two words of a counter: set it, add to it (wrapping to 0 past MAX_VALUE),
 * read it. */
enum change { SET, INC, READ };

static int change(struct ibv_comp_cntr *cntr, const char *verb, enum change how, bool errors, uint64_t *value)
{
	struct soft_comp_cntr *c = (struct soft_comp_cntr *)cntr;
	int err = verbs_begin(cntr->context, verb);
	if (err)
		return err;
	uint64_t *word = errors ? &c->errors : &c->value;
	if (how == READ)
		*value = *word;
	else if (*value > MAX_VALUE)
		err = EINVAL;
	else
		*word = how == SET ? *value : (*word + *value) & MAX_VALUE;
	verbs_leave(cntr->context);
	return err;
}

VERBS_PUBLIC int ibv_set_comp_cntr(struct ibv_comp_cntr *cntr, uint64_t value)
{
	return change(cntr, "ibv_set_comp_cntr", SET, false, &value);
}

VERBS_PUBLIC int ibv_set_err_comp_cntr(struct ibv_comp_cntr *cntr, uint64_t value)
{
	return change(cntr, "ibv_set_err_comp_cntr", SET, true, &value);
}

VERBS_PUBLIC int ibv_inc_comp_cntr(struct ibv_comp_cntr *cntr, uint64_t amount)
{
	return change(cntr, "ibv_inc_comp_cntr", INC, false, &amount);
}

VERBS_PUBLIC int ibv_inc_err_comp_cntr(struct ibv_comp_cntr *cntr, uint64_t amount)
{
	return change(cntr, "ibv_inc_err_comp_cntr", INC, true, &amount);
}

VERBS_PUBLIC int ibv_read_comp_cntr(struct ibv_comp_cntr *cntr, uint64_t *value)
{
	return change(cntr, "ibv_read_comp_cntr", READ, false, value);
}

VERBS_PUBLIC int ibv_read_err_comp_cntr(struct ibv_comp_cntr *cntr, uint64_t *value)
{
	return change(cntr, "ibv_read_err_comp_cntr", READ, true, value);
}

VERBS_PUBLIC int ibv_qp_attach_comp_cntr(struct ibv_qp *qp, struct ibv_comp_cntr *cntr,
					 struct ibv_qp_attach_comp_cntr_attr *attr)
{
	struct soft_comp_cntr *c = (struct soft_comp_cntr *)cntr;
	int err = verbs_begin(qp->context, "ibv_qp_attach_comp_cntr");
	if (err)
		return err;
	if (cntr->context != qp->context || attr->comp_mask || !attr->op_mask)
		err = EINVAL;
	else if (attr->op_mask & ~OPS)
		err = ENOTSUP;
	else if (qp->state != IBV_QPS_RESET && qp->state != IBV_QPS_INIT)
		err = EINVAL;
	else
		err = verbs_qp_add_comp_ops(qp, attr->op_mask, &c->object);
	verbs_leave(qp->context);
	return err;
}
