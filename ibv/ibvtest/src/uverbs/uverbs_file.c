/* SPDX-License-Identifier: Apache-2.0
 *
 * uverbs_file.c: the lock, and the open files of a device. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../nic.h"
#include "../verbs_soft.h"
#include "uverbs_core.h"

pthread_mutex_t uv_mutex = PTHREAD_MUTEX_INITIALIZER;

void uv_lock(void) { pthread_mutex_lock(&uv_mutex); }
void uv_unlock(void) { pthread_mutex_unlock(&uv_mutex); }
bool uv_without(const struct uv_device *device, const char *feature) { return verbs_without(device->name, feature); }
bool uv_lost(const struct uv_file *file) { return file->generation != file->device->generation; }
int uv_gate(struct uv_device *device, const char *name) { return verbs_call(device->name, name); }

int uv_get_context(const struct uv_call *call)
{
	if (!call->file->context)
		return EINVAL;
	return uv_lost(call->file) ? EIO : 0;
}

int uv_fstat(pid_t pid, int fd, struct stat *s)
{
	char path[64];
	if (pid == getpid())
		return syscall(SYS_newfstatat, fd, "", s, AT_EMPTY_PATH);
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
	return stat(path, s);
}

/* Commands of the open files return EIO after a loss. */
bool uv_device_obey(struct uv_device *d, const char *word)
{
	bool down = !strcmp(word, "port_down"), silent = !strcmp(word, "silent");
	if (silent || !strcmp(word, "fatal") || !strcmp(word, "remove")) {
		d->removed = true;
		d->unlisted = !strcmp(word, "remove");
		d->generation++;
		for (struct uv_file *f = silent ? NULL : d->files; f; f = f->next)
			uv_async_event(f, IB_EVENT_DEVICE_FATAL, 0);
	} else if (!strcmp(word, "return")) {
		d->removed = d->unlisted = false;
	} else if (down || !strcmp(word, "port_up")) {
		d->port_down = down;
		for (struct uv_file *f = d->files; f; f = f->next)
			uv_async_event(f, down ? IB_EVENT_PORT_ERR : IB_EVENT_PORT_ACTIVE, 1);
	} else {
		return false;
	}
	return true;
}

struct uv_file *uv_file_new(struct uv_device *device, int (*install_fd)(int))
{
	struct uv_file *f = calloc(1, sizeof(*f));
	if (!f)
		return NULL;
	f->device = device;
	f->generation = device->generation;
	f->install_fd = install_fd;
	f->memory = -1;
	f->next_key = 1 << 20; /* no key is 0, and none is small */
	f->next = device->files;
	device->files = f;
	return f;
}

void uv_close(struct uv_file *file)
{
	struct uv_file **at = &file->device->files;
	file->closing = true;
	if (file->calls)
		return;
	uv_objects_close(file);
	free(file->context);
	uv_mappings_close(file);
	while (*at && *at != file)
		at = &(*at)->next;
	if (*at)
		*at = file->next;
	/* The next opener may be in another network namespace. */
	if (!file->device->files && file->device->nic) {
		nic_close(file->device->nic);
		file->device->nic = NULL;
		file->device->drops = 0;
	}
	free(file);
}
