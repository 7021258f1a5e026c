/* SPDX-License-Identifier: Apache-2.0
 *
 * uverbs_attr.c: the access of methods to their attributes. */
#include <errno.h>
#include <string.h>

#include "uverbs_core.h"

static size_t min(size_t a, size_t b) { return a < b ? a : b; }

const struct uv_attr *uv_attr_get(const struct uv_call *call, uint16_t id)
{
	for (unsigned i = 0; i < call->attrs; i++)
		if (call->attr[i].spec->id == id)
			return &call->attr[i];
	return NULL;
}

struct uv_object *uv_attr_object(const struct uv_call *call, uint16_t id)
{
	const struct uv_attr *a = uv_attr_get(call, id);
	return a ? a->object : NULL;
}

/* The first n bytes of an input, which lies in the attribute when it has at most 8. */
static int input(const struct uv_call *call, const struct uv_attr *a, void *to, size_t n)
{
	if (a->len <= sizeof(a->data)) {
		memcpy(to, &a->data, n);
		return 0;
	}
	return uv_copy_from_user(call->task, to, a->data, n);
}

int uv_copy_from(struct uv_call *call, uint16_t id, void *to, size_t size)
{
	const struct uv_attr *a = uv_attr_get(call, id);
	if (!a)
		return ENOENT;
	return a->len > size ? EINVAL : input(call, a, to, a->len);
}

int uv_copy_from_or_zero(struct uv_call *call, uint16_t id, void *to, size_t size)
{
	const struct uv_attr *a = uv_attr_get(call, id);
	if (!a)
		return ENOENT;
	size_t n = min(a->len, size);
	memset((char *)to + n, 0, size - n);
	return input(call, a, to, n);
}

static int set_output(struct uv_call *call, const struct uv_attr *a)
{
	uint16_t flags;
	uint64_t at = call->user_attrs + a->index * sizeof(struct ib_uverbs_attr) + offsetof(struct ib_uverbs_attr, flags);
	if (uv_mutant("no_valid_output"))
		return 0;
	if (uv_copy_from_user(call->task, &flags, at, sizeof(flags)))
		return EFAULT;
	flags |= UVERBS_ATTR_F_VALID_OUTPUT;
	return uv_copy_to_user(call->task, at, &flags, sizeof(flags));
}

int uv_copy_to(struct uv_call *call, uint16_t id, const void *from, size_t size)
{
	const struct uv_attr *a = uv_attr_get(call, id);
	if (!a)
		return ENOENT;
	if (uv_mutant("truncated_response"))
		size /= 2;
	int err = uv_copy_to_user(call->task, a->data, from, min(a->len, size));
	return err ? err : set_output(call, a);
}

int uv_copy_to_opt(struct uv_call *call, uint16_t id, const void *from, size_t size)
{
	int err = uv_copy_to(call, id, from, size);
	return err == ENOENT ? 0 : err;
}

static int clear_user(const struct uv_task *task, uint64_t at, size_t n)
{
	static const char zero[256];
	int err = 0;
	for (; n && !err; n -= min(n, sizeof(zero)), at += sizeof(zero))
		err = uv_copy_to_user(task, at, zero, min(n, sizeof(zero)));
	return err;
}

int uv_copy_to_or_zero(struct uv_call *call, uint16_t id, const void *from, size_t size)
{
	const struct uv_attr *a = uv_attr_get(call, id);
	if (!a)
		return ENOENT;
	if (size < a->len && clear_user(call->task, a->data + size, a->len - size))
		return EFAULT;
	return uv_copy_to(call, id, from, size);
}

int uv_get_const(struct uv_call *call, uint16_t id, uint64_t max, uint64_t *value)
{
	const struct uv_attr *a = uv_attr_get(call, id);
	if (!a)
		return ENOENT;
	if (a->data > max)
		return EINVAL;
	*value = a->data;
	return 0;
}

int uv_get_flags(struct uv_call *call, uint16_t id, uint64_t allowed, uint64_t *flags)
{
	const struct uv_attr *a = uv_attr_get(call, id);
	*flags = 0;
	if (!a)
		return 0;
	if (a->len != 8 && a->len != 4)
		return EINVAL;
	*flags = a->len == 8 ? a->data : (uint32_t)a->data;
	return *flags & ~allowed ? EINVAL : 0;
}

void uv_fill_udata(const struct uv_call *call, struct uv_udata *u, uint16_t in, uint16_t out)
{
	const struct uv_attr *i = uv_attr_get(call, in), *o = uv_attr_get(call, out);
	memset(u, 0, sizeof(*u));
	if (i) {
		u->in = i->data;
		u->inlen = i->len;
	}
	if (o) {
		u->out = o->data;
		u->outlen = o->len;
	}
}

static int udata_copy(struct uv_call *call, const struct uv_udata *u, size_t at, void *to, size_t n)
{
	if (u->inlen <= sizeof(u->in)) {
		memcpy(to, (const char *)&u->in + at, n);
		return 0;
	}
	return uv_copy_from_user(call->task, to, u->in + at, n);
}

int uv_udata_in(struct uv_call *call, const struct uv_udata *u, void *to, size_t size)
{
	size_t n = min(size, u->inlen);
	memset((char *)to + n, 0, size - n);
	return udata_copy(call, u, 0, to, n);
}

int uv_udata_in_at(struct uv_call *call, const struct uv_udata *u, size_t at, void *to, size_t size)
{
	if (at > u->inlen || size > u->inlen - at)
		return EINVAL;
	return udata_copy(call, u, at, to, size);
}

int uv_udata_out(struct uv_call *call, const struct uv_udata *u, const void *from, size_t size)
{
	return uv_copy_to_user(call->task, u->out, from, min(size, u->outlen));
}

bool uv_udata_cleared(struct uv_call *call, const struct uv_udata *u, size_t at)
{
	char part[256];
	while (at < u->inlen) {
		size_t n = min(u->inlen - at, sizeof(part));
		if (udata_copy(call, u, at, part, n))
			return false;
		for (size_t i = 0; i < n; i++)
			if (part[i])
				return false;
		at += n;
	}
	return true;
}
