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
	struct uv_object *o = file->objects;
	while (o && o->handle != handle)
		o = o->next;
	return o;
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
	do
		file->last_handle = file->last_handle % 0x7fffffff + 1;
	while (find(file, file->last_handle));
	o->type = type;
	o->handle = file->last_handle;
	o->file = file;
	o->device = file->device;
	o->next = file->objects;
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
	struct uv_object **at = &object->file->objects;
	while (*at && *at != object)
		at = &(*at)->next;
	if (*at)
		*at = object->next;
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
}
