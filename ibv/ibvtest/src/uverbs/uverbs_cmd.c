/* SPDX-License-Identifier: Apache-2.0
 *
 * uverbs_cmd.c: the commands of INVOKE_WRITE for devices, protection domains, memory regions and address handles, as the
 * kernel's uverbs_cmd.c. Their structures begin with the address of the response, which this path leaves 0. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "uverbs_core.h"

const struct uv_write_cmd *uv_write_find(uint32_t cmd)
{
	const struct uv_write_cmd *const tables[] = {uv_device_cmds, uv_qp_cmds, uv_flow_cmds};
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		for (const struct uv_write_cmd *w = tables[i]; w->run; w++)
			if (w->cmd == cmd)
				return w;
	return NULL;
}

static int query(struct uv_call *call, struct ib_uverbs_ex_query_device_resp *r, bool extended)
{
	uint8_t gid[16];
	uv_gid(call->device, gid);
	memset(r, 0, sizeof(*r));
	memcpy(&r->base.node_guid, gid + 8, 8);
	memcpy(&r->base.sys_image_guid, gid + 8, 8);
	r->base.phys_port_cnt = 1;
	r->base.page_size_cap = ~0xfffull;
	int err = uv_get_context(call);
	return err ? err : call->device->ops->query_device(call->device, r, call, extended);
}

static int query_device(struct uv_call *call)
{
	struct ib_uverbs_ex_query_device_resp r;
	int err = query(call, &r, false);
	return err ? err : uv_udata_out(call, &call->core, &r.base, sizeof(r.base));
}

static int ex_query_device(struct uv_call *call)
{
	struct ib_uverbs_ex_query_device_resp r;
	struct ib_uverbs_ex_query_device c;
	int err = uv_udata_in(call, &call->core, &c, sizeof(c));
	if (!err && (c.comp_mask || c.reserved))
		err = EINVAL;
	if (!err && !uv_udata_cleared(call, &call->core, sizeof(c)))
		err = EOPNOTSUPP;
	if (!err)
		err = query(call, &r, true);
	r.response_length = call->core.outlen < sizeof(r) ? call->core.outlen : sizeof(r);
	if (uv_mutant("caps_lie"))
		r.base.max_qp = r.base.max_cq = r.base.max_qp_wr = r.base.max_cqe = 0xffffffff;
	if (uv_mutant("wrong_length"))
		r.response_length = 0x7fffffff;
	if (uv_mutant("unknown_comp_mask"))
		r.comp_mask = r.device_cap_flags_ex = UINT32_MAX;
	return err ? err : uv_udata_out(call, &call->core, &r, sizeof(r));
}

static int query_port(struct uv_call *call)
{
	struct ib_uverbs_query_port_resp_ex r = {0};
	struct ib_uverbs_query_port c;
	int err = uv_udata_in(call, &call->core, &c, sizeof(c));
	if (!err)
		err = uv_get_context(call);
	if (!err && c.port_num != 1)
		err = EINVAL;
	if (!err)
		err = call->device->ops->query_port(call->device, &r);
	return err ? err : uv_udata_out(call, &call->core, &r.legacy_resp, sizeof(r.legacy_resp));
}

/* Writes the response with the handle of a new object: the first member of each response. */
static int respond(struct uv_call *call, const struct uv_object *o, uint32_t *response, size_t size)
{
	*response = uv_mutant("wrong_handle") ? o->handle ^ 0x40 : o->handle;
	return uv_udata_out(call, &call->core, response, size);
}

/* After the operation of the driver succeeded, an error of the core destroys the object. */
static int made(struct uv_call *call, struct uv_object *o, int (*destroy)(struct uv_object *, struct uv_call *), int err)
{
	if (err)
		(void)destroy(o, NULL);
	else
		o->destroy = destroy;
	(void)call;
	return err;
}

static int alloc_pd(struct uv_call *call)
{
	struct uv_object *o;
	struct ib_uverbs_alloc_pd_resp r;
	int err = uv_object_new(call, UVERBS_OBJECT_PD, call->device->ops->size_ib_pd, &o);
	if (!err)
		err = call->device->ops->alloc_pd((struct uv_pd *)o, call);
	return err ? err : respond(call, o, &r.pd_handle, sizeof(r));
}

static int destroy_mr(struct uv_object *o, struct uv_call *call)
{
	struct uv_mr *mr = (struct uv_mr *)o;
	int err = o->device->ops->dereg_mr ? o->device->ops->dereg_mr(mr, call) : 0;
	if (!err)
		mr->pd->object.uses--;
	return err;
}

/* Are all pages of the range mapped? The kernel pins them. */
static int mapped(const struct uv_task *task, uint64_t start, uint64_t length, bool write)
{
	char byte[256];
	struct iovec to = {byte, 0}, from[256];
	uint64_t end = start + length;
	if (!length || end < start)
		return EINVAL;
	if (task->pid == getpid())
		return madvise((void *)(start & ~0xfffull), end - (start & ~0xfffull), write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) ? EFAULT : 0;
	for (uint64_t at = start; at < end;) {
		int n = 0;
		for (; n < 256 && at < end; n++, at = (at | 0xfff) + 1)
			from[n] = (struct iovec){(void *)(uintptr_t)at, 1};
		to.iov_len = n;
		if (process_vm_readv(task->pid, &to, 1, from, n, 0) != n)
			return EFAULT;
	}
	return 0;
}

enum {
	ACCESS_REMOTE = IB_UVERBS_ACCESS_REMOTE_WRITE | IB_UVERBS_ACCESS_REMOTE_ATOMIC,
	ACCESS_KNOWN = 0x7f | IB_UVERBS_ACCESS_HUGETLB | 0x300 | IB_UVERBS_ACCESS_OPTIONAL_RANGE,
};

static int reg_mr(struct uv_call *call)
{
	struct ib_uverbs_reg_mr c;
	struct ib_uverbs_reg_mr_resp r;
	struct uv_object *o, *pd;
	int err = uv_udata_in(call, &call->core, &c, sizeof(c));
	if (!err && ((c.start ^ c.hca_va) & 0xfff))
		err = EINVAL;
	if (!err)
		err = uv_object_new(call, UVERBS_OBJECT_MR, call->device->ops->size_ib_mr, &o);
	if (!err && (c.access_flags & ~ACCESS_KNOWN))
		err = EINVAL;
	if (!err && (c.access_flags & ACCESS_REMOTE) && !(c.access_flags & IB_UVERBS_ACCESS_LOCAL_WRITE))
		err = EINVAL;
	if (!err)
		err = uv_object_get(call->file, UVERBS_OBJECT_PD, c.pd_handle, &pd);
	if (!err && (c.access_flags & IB_UVERBS_ACCESS_ON_DEMAND))
		err = EOPNOTSUPP;
	if (!err)
		err = mapped(call->task, c.start, c.length, c.access_flags & IB_UVERBS_ACCESS_LOCAL_WRITE);
	if (err)
		return err;
	struct uv_mr *mr = (struct uv_mr *)o;
	mr->pd = (struct uv_pd *)pd;
	mr->start = c.start;
	mr->length = c.length;
	mr->iova = c.hca_va;
	mr->access = c.access_flags;
	if ((err = call->device->ops->reg_user_mr(mr, call)))
		return err;
	pd->uses++;
	r.lkey = mr->lkey;
	r.rkey = mr->rkey;
	return made(call, o, destroy_mr, respond(call, o, &r.mr_handle, sizeof(r)));
}

static int destroy_ah(struct uv_object *o, struct uv_call *call)
{
	struct uv_ah *ah = (struct uv_ah *)o;
	int err = o->device->ops->destroy_ah ? o->device->ops->destroy_ah(ah, call) : 0;
	if (!err)
		ah->pd->object.uses--;
	return err;
}

static int create_ah(struct uv_call *call)
{
	struct ib_uverbs_create_ah c;
	struct ib_uverbs_create_ah_resp r;
	struct uv_object *o, *pd;
	int err = uv_udata_in(call, &call->core, &c, sizeof(c));
	if (!err && c.attr.port_num != 1)
		err = EINVAL;
	if (!err)
		err = uv_object_new(call, UVERBS_OBJECT_AH, call->device->ops->size_ib_ah, &o);
	if (!err)
		err = uv_object_get(call->file, UVERBS_OBJECT_PD, c.pd_handle, &pd);
	if (!err && !call->device->ops->create_ah)
		err = EOPNOTSUPP;
	if (!err && c.attr.is_global && c.attr.grh.sgid_index)
		err = EINVAL;
	if (err)
		return err;
	struct uv_ah *ah = (struct uv_ah *)o;
	ah->pd = (struct uv_pd *)pd;
	ah->attr = c.attr;
	o->user_handle = c.user_handle;
	if ((err = call->device->ops->create_ah(ah, call)))
		return err;
	pd->uses++;
	return made(call, o, destroy_ah, respond(call, o, &r.ah_handle, sizeof(r)));
}

static int create_comp_channel(struct uv_call *call)
{
	struct uv_object *o;
	int err = uv_object_new(call, UVERBS_OBJECT_COMP_CHANNEL, sizeof(struct uv_channel), &o);
	return err ? err : uv_channel_open((struct uv_channel *)o, call, call->core.out, sizeof(__u32));
}

#define EX(c) (IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_##c)
#define CMD(c, req, resp, run) {IB_USER_VERBS_CMD_##c, #c, sizeof(struct req), sizeof(struct resp), run}
const struct uv_write_cmd uv_device_cmds[] = {
	CMD(QUERY_DEVICE, ib_uverbs_query_device, ib_uverbs_query_device_resp, query_device),
	{EX(QUERY_DEVICE), "EX_QUERY_DEVICE", sizeof(struct ib_uverbs_ex_query_device),
	 offsetof(struct ib_uverbs_ex_query_device_resp, odp_caps), ex_query_device},
	CMD(QUERY_PORT, ib_uverbs_query_port, ib_uverbs_query_port_resp, query_port),
	CMD(ALLOC_PD, ib_uverbs_alloc_pd, ib_uverbs_alloc_pd_resp, alloc_pd),
	CMD(REG_MR, ib_uverbs_reg_mr, ib_uverbs_reg_mr_resp, reg_mr),
	CMD(CREATE_AH, ib_uverbs_create_ah, ib_uverbs_create_ah_resp, create_ah),
	CMD(CREATE_COMP_CHANNEL, ib_uverbs_create_comp_channel, ib_uverbs_create_comp_channel_resp, create_comp_channel),
	{0}};
