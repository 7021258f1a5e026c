/* SPDX-License-Identifier: Apache-2.0
 *
 * uverbs_ioctl.c: the dispatcher of RDMA_VERBS_IOCTL. The checks have the order and the errnos of the
 * kernel's uverbs_ioctl.c. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "uverbs_core.h"

static const struct uv_method *const core[] = {uv_device_methods, uv_type_methods,    uv_cq_methods,
					       uv_qp_methods,	  uv_counter_methods, uv_event_methods, NULL};

static const struct uv_method *find(const struct uv_method *const *tables, uint16_t object, uint16_t method)
{
	for (; tables && *tables; tables++)
		for (const struct uv_method *m = *tables; m->attrs; m++)
			if (m->object == object && m->method == method)
				return m;
	return NULL;
}

const struct uv_method *uv_method_find(const struct uv_device *device, uint16_t object, uint16_t method)
{
	const struct uv_method *m = find(core, object, method);
	if (!m)
		m = find(device->driver->methods, object, method);
	return m && m->run ? m : NULL;
}

static const struct uv_attr_spec *spec(const struct uv_attr_spec *specs, uint16_t id)
{
	for (; specs && specs->type != UV_END; specs++)
		if (specs->id == id)
			return specs;
	return NULL;
}

const struct uv_attr_spec *uv_extra_specs(const struct uv_device *device, const struct uv_method *method)
{
	const struct uv_method *more = find(device->driver->methods, method->object, method->method);
	return more && more != method ? more->attrs : NULL;
}

const struct uv_attr_spec *uv_spec_find(const struct uv_device *device, const struct uv_method *method, uint16_t id)
{
	const struct uv_attr_spec *s = spec(method->attrs, id);
	return s ? s : spec(uv_extra_specs(device, method), id);
}

static bool cleared(const struct uv_call *call, const struct ib_uverbs_attr *u, size_t from)
{
	char rest[UV_SIZE_ANY];
	size_t n = u->len - from;
	if (u->len <= sizeof(u->data))
		memcpy(rest, (const char *)&u->data + from, n);
	else if (uv_copy_from_user(call->task, rest, u->data + from, n))
		return false;
	for (size_t i = 0; i < n; i++)
		if (rest[i])
			return false;
	return true;
}

static int set_data(const struct uv_call *call, const struct ib_uverbs_attr *u, struct uv_attr *a)
{
	const struct uv_attr_spec *s = a->spec;
	if (s->type == UV_ENUM_IN) {
		if (u->attr_data.elem_id >= s->max)
			return EOPNOTSUPP;
		if (u->attr_data.reserved)
			return EINVAL;
		a->enum_id = u->attr_data.elem_id;
	} else {
		if (s->type == UV_PTR_IN && u->len > s->max && s->zero_trailing && !cleared(call, u, s->max))
			return EOPNOTSUPP;
		if (u->len < s->min || (!s->zero_trailing && u->len > s->max))
			return EINVAL;
		if (u->attr_data.elem_id || u->attr_data.reserved)
			return EINVAL;
	}
	a->len = u->len;
	a->data = u->data;
	return 0;
}

static size_t size_of(const struct uv_device_ops *ops, uint16_t object)
{
	switch (object) {
	case UVERBS_OBJECT_PD: return ops->size_ib_pd;
	case UVERBS_OBJECT_MR: return ops->size_ib_mr;
	case UVERBS_OBJECT_AH: return ops->size_ib_ah;
	case UVERBS_OBJECT_CQ: return ops->size_ib_cq;
	case UVERBS_OBJECT_QP: return ops->size_ib_qp;
	case UVERBS_OBJECT_FLOW: return ops->size_ib_flow;
	case UVERBS_OBJECT_COUNTERS: return ops->size_ib_counters;
	case UVERBS_OBJECT_COMP_CNTR: return ops->size_ib_comp_cntr;
	case UVERBS_OBJECT_ASYNC_EVENT:
	case UVERBS_OBJECT_COMP_CHANNEL: return sizeof(struct uv_channel);
	default: return UV_DRIVER_OBJECT_SIZE;
	}
}

static int set_object(struct uv_call *call, const struct ib_uverbs_attr *u, struct uv_attr *a)
{
	const struct uv_attr_spec *s = a->spec;
	if (u->attr_data.elem_id || u->attr_data.reserved || u->len)
		return EINVAL;
	if (s->access != UV_NEW && s->access != UV_DESTROY && uv_lost(call->file))
		return EIO;
	a->data = u->data;
	if (s->access != UV_NEW)
		return s->type == UV_FD ? uv_channel_get(call, s->object, (int64_t)u->data, &a->object)
					: uv_object_get(call->file, s->object, u->data, &a->object);
	uint64_t id, at = call->user_attrs + a->index * sizeof(*u) + offsetof(struct ib_uverbs_attr, data);
	int err = uv_object_new(call, s->object, size_of(call->device->ops, s->object), &a->object);
	if (err)
		return err;
	if (s->type == UV_FD)
		return uv_channel_open((struct uv_channel *)a->object, call, at, sizeof(id));
	id = uv_mutant("wrong_handle") ? a->object->handle ^ 0x40 : a->object->handle;
	return uv_copy_to_user(call->task, at, &id, sizeof(id));
}

static int set_objects(struct uv_call *call, const struct ib_uverbs_attr *u, struct uv_attr *a)
{
	uint32_t ids[256];
	if (u->attr_data.elem_id || u->attr_data.reserved || u->len % sizeof(uint32_t))
		return EINVAL;
	unsigned n = u->len / sizeof(uint32_t);
	if (n < a->spec->min || n > a->spec->max || n > sizeof(ids) / sizeof(ids[0]))
		return EINVAL;
	if (u->len <= sizeof(u->data))
		memcpy(ids, &u->data, u->len);
	else if (uv_copy_from_user(call->task, ids, u->data, u->len))
		return EFAULT;
	a->objects = calloc(n + 1, sizeof(*a->objects));
	if (!a->objects)
		return ENOMEM;
	for (; a->count < n; a->count++) {
		int err = uv_object_get(call->file, a->spec->object, ids[a->count], &a->objects[a->count]);
		if (err)
			return err;
	}
	return 0;
}

static int set_attr(struct uv_call *call, const struct ib_uverbs_attr *u, unsigned index)
{
	const struct uv_attr_spec *s = uv_spec_find(call->device, call->method, u->attr_id);
	if (!s)
		return u->flags & UVERBS_ATTR_F_MANDATORY ? EPROTONOSUPPORT : 0;
	if (uv_attr_get(call, u->attr_id) || call->attrs == UV_ATTRS)
		return EINVAL;
	struct uv_attr *a = &call->attr[call->attrs];
	*a = (struct uv_attr){.spec = s, .index = index};
	int err;
	switch (s->type) {
	case UV_IDR:
	case UV_FD: err = set_object(call, u, a); break;
	case UV_IDRS: err = set_objects(call, u, a); break;
	default: err = set_data(call, u, a); break;
	}
	if (err)
		free(a->objects);
	else
		call->attrs++;
	return err;
}

static int mandatory(const struct uv_call *call, const struct uv_attr_spec *specs)
{
	for (; specs && specs->type != UV_END; specs++)
		if (specs->mandatory && !uv_attr_get(call, specs->id))
			return EINVAL;
	return 0;
}

/* The object of an attribute with the access UV_DESTROY goes before the handler runs, which may still read it. */
static int run_destroy(struct uv_call *call, struct uv_object *o)
{
	int err;
	if (o->uses)
		return EBUSY;
	if (o->destroy && (err = o->destroy(o, call)))
		return err;
	o->committed = false;
	err = call->method->run(call);
	uv_object_free(o);
	return err;
}

static int run(struct uv_call *call, const struct ib_uverbs_attr *u, unsigned n)
{
	struct uv_object *destroyed = NULL;
	int err;
	for (unsigned i = 0; i < n; i++)
		if ((err = set_attr(call, &u[i], i)))
			return err;
	if ((err = mandatory(call, call->method->attrs)) ||
	    (err = mandatory(call, uv_extra_specs(call->device, call->method))))
		return err;
	for (unsigned i = 0; i < call->attrs; i++)
		if (call->attr[i].object && call->attr[i].spec->access == UV_DESTROY)
			destroyed = call->attr[i].object;
	uv_fill_udata(call, &call->driver, UVERBS_ATTR_UHW_IN, UVERBS_ATTR_UHW_OUT);
	err = destroyed ? run_destroy(call, destroyed) : call->method->run(call);
	const struct uv_attr *out = uv_attr_get(call, UVERBS_ATTR_UHW_OUT);
	if (!err && out) /* as the kernel: it assumes that the driver wrote all of it */
		err = uv_copy_to(call, UVERBS_ATTR_UHW_OUT, NULL, 0);
	for (unsigned i = 0; i < call->made_len && !err; i++)
		if (call->made[i]->destroy == uv_channel_close)
			err = uv_channel_give((struct uv_channel *)call->made[i], call);
	return err == EPROTONOSUPPORT ? EINVAL : err;
}

static void finish(struct uv_call *call, int err)
{
	while (call->made_len) {
		struct uv_object *o = call->made[--call->made_len];
		if (!err) {
			o->committed = true;
			continue;
		}
		if (o->destroy == uv_channel_close)
			(void)uv_channel_close(o, NULL);
		uv_object_free(o);
	}
	for (unsigned i = 0; i < call->attrs; i++)
		free(call->attr[i].objects);
}

/* Is it a method that only destroys? It works on a lost device. */
static bool destroys(const struct uv_method *m)
{
	for (const struct uv_attr_spec *s = m->attrs; s->type != UV_END; s++)
		if (s->access == UV_DESTROY && s->type == UV_IDR)
			return true;
	return false;
}

static int ioctl(struct uv_file *file, struct uv_task *task, unsigned long cmd, uint64_t arg)
{
	struct ib_uverbs_ioctl_hdr h;
	struct ib_uverbs_attr attrs[4096 / sizeof(struct ib_uverbs_attr)];
	if ((uint32_t)cmd != RDMA_VERBS_IOCTL)
		return ENOTTY;
	if (uv_copy_from_user(task, &h, arg, sizeof(h)))
		return EFAULT;
	if (h.length > 4096 || h.length != sizeof(h) + h.num_attrs * sizeof(attrs[0]))
		return EINVAL;
	if (h.reserved1 || h.reserved2)
		return EPROTONOSUPPORT;
	if (h.driver_id != file->device->ops->driver_id)
		return EINVAL;
	struct uv_call call = {.file = file, .task = task, .device = file->device, .user_attrs = arg + sizeof(h)};
	call.method = uv_method_find(file->device, h.object_id, h.method_id);
	if (!call.method)
		return EPROTONOSUPPORT;
	call.name = call.method->name;
	if (uv_copy_from_user(task, attrs, call.user_attrs, h.num_attrs * sizeof(attrs[0])))
		return EFAULT;
	int err = call.method->run == uv_invoke_write ? 0 : uv_gate_unlocked(&call, call.name);
	if (!err && uv_lost(file) && call.method->object >= UVERBS_ID_DRIVER_NS && !destroys(call.method))
		err = EIO;
	if (!err)
		err = run(&call, attrs, h.num_attrs);
	finish(&call, err);
	return err;
}

int uv_ioctl(struct uv_file *file, struct uv_task *task, unsigned long cmd, uint64_t arg)
{
	file->calls++;
	int err = ioctl(file, task, cmd, arg);
	uv_device_note_drops(file->device);
	if (file->device->unplugged) {
		file->device->unplugged = false;
		(void)uv_device_obey(file->device, "fatal");
	}
	if (err && uv_mutant("wrong_errno"))
		err = EXDEV;
	if (!--file->calls && file->closing)
		uv_close(file);
	return err;
}
