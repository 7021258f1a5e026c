/* SPDX-License-Identifier: Apache-2.0
 *
 * uverbs_object.c: handles. An object belongs to one open file. Its handle is the smallest number that no object of the
 * file has, as the kernel's XArray gives them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "uverbs_core.h"

static struct uv_object *find(const struct uv_file *file, uint64_t handle)
{
	return handle < file->handles ? file->by_handle[handle] : NULL;
}

/* Takes the smallest free handle, from 1 on. */
static int take_handle(struct uv_file *file, struct uv_object *o)
{
	uint32_t h = file->free_handle ? file->free_handle : 1;
	while (h < file->handles && file->by_handle[h])
		h++;
	if (h >= file->handles) {
		uint32_t n = file->handles ? 2 * file->handles : 64;
		struct uv_object **more = realloc(file->by_handle, n * sizeof(*more));
		if (!more)
			return ENOMEM;
		memset(more + file->handles, 0, (n - file->handles) * sizeof(*more));
		file->by_handle = more;
		file->handles = n;
	}
	file->by_handle[h] = o;
	file->free_handle = h + 1;
	o->handle = h;
	return 0;
}

void uv_object_no_handle(struct uv_object *o)
{
	struct uv_file *file = o->file;
	if (find(file, o->handle) != o)
		return;
	file->by_handle[o->handle] = NULL;
	if (o->handle < file->free_handle)
		file->free_handle = o->handle;
	o->handle = UINT32_MAX;
}

int uv_object_new(struct uv_call *call, uint16_t type, size_t size, struct uv_object **object)
{
	struct uv_file *file = call->file;
	int err = uv_get_context(call);
	if (err)
		return err;
	if (call->made_len == UV_NEW_OBJECTS)
		return ENOMEM;
	struct uv_object *o = calloc(1, size < sizeof(*o) ? sizeof(*o) : size);
	if (!o)
		return ENOMEM;
	if (take_handle(file, o)) {
		free(o);
		return ENOMEM;
	}
	o->type = type;
	o->file = file;
	o->task = call->task;
	o->device = file->device;
	o->next = file->objects;
	o->at = &file->objects;
	if (o->next)
		o->next->at = &o->next;
	file->objects = o;
	call->made[call->made_len++] = o;
	*object = o;
	return 0;
}

int uv_object_get(struct uv_file *file, uint16_t type, uint64_t handle, struct uv_object **object)
{
	if (handle > 0x7fffffff)
		return EINVAL;
	struct uv_object *o = find(file, handle);
	if (!o || !o->committed)
		return ENOENT;
	if (o->type != type)
		return EINVAL;
	*object = o;
	return 0;
}

/* Takes the object out of its file and frees it. */
void uv_object_free(struct uv_object *object)
{
	uv_object_no_handle(object);
	*object->at = object->next;
	if (object->next)
		object->next->at = object->at;
	free(object);
}

int uv_object_destroy(struct uv_object *object, struct uv_call *call)
{
	int err;
	if (object->uses)
		return EBUSY;
	if (object->destroy && (err = object->destroy(object, call)))
		return err;
	uv_object_free(object);
	return 0;
}

/* The youngest first. An object that another one uses waits for the next pass. */
void uv_objects_close(struct uv_file *file)
{
	for (bool more = true; more;) {
		more = false;
		for (struct uv_object *o = file->objects, *next; o; o = next) {
			next = o->next;
			if (o->uses)
				continue;
			if (o->destroy)
				(void)o->destroy(o, NULL);
			uv_object_free(o);
			more = true;
		}
	}
	/* Uses that no object gives back: a defect of a driver. */
	while (file->objects) {
		if (file->objects->destroy)
			(void)file->objects->destroy(file->objects, NULL);
		uv_object_free(file->objects);
	}
	free(file->by_handle);
	file->by_handle = NULL;
	file->handles = file->free_handle = 0;
}
