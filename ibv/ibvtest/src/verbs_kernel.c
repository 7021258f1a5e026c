/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_kernel.c: the library as the front of the uverbs kernel in software (uverbs/), which is linked into it. The
 * kernel has every object, makes the checks and returns the errnos. The work of queues is the library's. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nic.h"
#include "uverbs/mlx5_ib.h"
#include "uverbs/uverbs_core.h"
#include "verbs_kernel.h"

/* The library counts its own verbs, and each firmware command: no method of the kernel beside them. */
int uv_gate_unlocked(struct uv_call *call, const char *name)
{
	(void)call, (void)name;
	return 0;
}

bool uv_mutant(const char *name)
{
	(void)name;
	return false;
}

static int keep(int fd)
{
	return fd;
}

static struct uv_task self = {.own = true}; /* under the kernel's lock */

/* Opening a socket in another network namespace takes a thread that enters it. */
struct visit {
	struct soft_device *device;
	int err;
};

static void *visit(void *arg)
{
	struct visit *v = arg;
	v->err = setns(v->device->netns_fd, CLONE_NEWNET) ? errno : nic_open(v->device->netdev, &v->device->kernel.nic);
	return NULL;
}

int uv_device_nic(struct uv_device *device, struct nic **nic)
{
	struct soft_device *d = RDMA_OUTER(device, struct soft_device, kernel);
	struct stat ns;
	struct visit v = {.device = d};
	sigset_t all, old;
	pthread_t thread;
	int err = 0;
	if (device->nic) {
		;
	} else if (d->netns_fd < 0 || stat("/proc/thread-self/ns/net", &ns) || ns.st_ino == d->netns) {
		err = nic_open(d->netdev, &device->nic);
	} else {
		sigfillset(&all);
		pthread_sigmask(SIG_BLOCK, &all, &old);
		err = pthread_create(&thread, NULL, visit, &v);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
		if (!err) {
			pthread_join(thread, NULL);
			err = v.err;
		}
	}
	*nic = device->nic;
	return err;
}

void verbs_kernel_name(struct soft_device *d)
{
	d->kernel.driver = &verbs_driver;
	d->kernel.ops = verbs_driver.ops;
	memcpy(d->kernel.name, d->device.name, sizeof(d->kernel.name));
}

/* Adds the packets that the NIC lost since the last call to the statistic NIC_DROPS. */
static void note_drops(struct soft_device *d)
{
	uint64_t now = d->kernel.nic ? nic_drops(d->kernel.nic) : d->drops;
	verbs_count("NIC_DROPS", now - d->drops);
	d->drops = now;
}

/* The objects of the kernel go with the device: its flows stop counting at once. The asynchronous descriptor ends, unless
 * the device is lost silently: then its writing end stays open, in place of the memory that the library does not have. */
static void sweep(struct soft_device *d, bool silent)
{
	d->kernel.unplugged = false;
	for (struct uv_file *f = d->kernel.files; f; f = f->next) {
		if (!uv_lost(f))
			continue;
		if (silent && f->async)
			f->memory = fcntl(f->async->write_fd, F_DUPFD_CLOEXEC, 0);
		uv_objects_close(f);
	}
}

bool verbs_kernel_obey(struct soft_device *d, const char *word)
{
	uv_lock();
	bool known = uv_device_obey(&d->kernel, word);
	sweep(d, !strcmp(word, "silent"));
	uv_unlock();
	return known;
}

/* The calls of a device that is gone fail: its objects are gone, too. */
static int call_kernel(struct soft_context *c, struct kernel_call *call)
{
	if (call->err)
		return call->err;
	call->header.length = sizeof(call->header) + call->header.num_attrs * sizeof(call->attr[0]);
	int err = uv_lost(c->file) ? EIO : uv_ioctl(c->file, &self, RDMA_VERBS_IOCTL, (uintptr_t)call);
	if (c->device->kernel.unplugged) {
		(void)uv_device_obey(&c->device->kernel, "fatal");
		sweep(c->device, false);
	}
	note_drops(c->device);
	return err;
}

int verbs_kernel_call(struct ibv_context *context, struct kernel_call *call)
{
	uv_lock();
	int err = call_kernel(verbs_context_of(context), call);
	uv_unlock();
	return err;
}

int verbs_kernel_open(struct soft_context *c)
{
	struct kernel_call call = KERNEL_CALL(UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC);
	uint64_t *fd = kernel_object(&call, UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, 0);
	struct uv_device *d = &c->device->kernel;
	struct mlx5_ib_ucontext *u = calloc(1, sizeof(*u));
	uv_lock();
	int err = d->removed ? EIO : ENOMEM;
	self.pid = getpid();
	c->file = u && !d->removed ? uv_file_new(d, keep) : NULL;
	if (c->file) {
		u->ibucontext.file = c->file;
		c->file->context = &u->ibucontext;
		if ((err = call_kernel(c, &call)))
			uv_close(c->file);
	} else {
		free(u);
	}
	uv_unlock();
	c->verbs.context.async_fd = *fd;
	return err;
}

void verbs_kernel_devx(struct soft_context *c)
{
	((struct mlx5_ib_ucontext *)c->file->context)->flags = MLX5_IB_ALLOC_UCTX_DEVX;
}

void verbs_kernel_close(struct soft_context *c)
{
	struct soft_device *d = c->device;
	note_drops(d);
	if (c->file->memory >= 0)
		close(c->file->memory);
	uv_close(c->file);
	if (!d->kernel.nic)
		d->drops = 0;
}
