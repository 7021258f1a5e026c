/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_kernel.c: the library as the front of the uverbs kernel in software (uverbs/), which is linked into it. The
 * kernel has the flows, the counters and the objects of DevX, makes the checks and returns the errnos. Queue pairs,
 * completion queues and their memory are the library's. The kernel knows of a queue pair its type and its uses. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "uverbs/mlx5_ib_flow.h"
#include "uverbs/uverbs_core.h"
#include "verbs_kernel.h"

static const struct uv_device_ops ops = {
	.driver_id = RDMA_DRIVER_MLX5,
	.size_ib_ucontext = sizeof(struct mlx5_ib_ucontext),
	.size_ib_flow = sizeof(struct mlx5_ib_flow),
	.size_ib_counters = sizeof(struct mlx5_ib_mcounters),
	.create_flow = mlx5_ib_create_flow,
	.destroy_flow = mlx5_ib_destroy_flow,
	.create_counters = mlx5_ib_create_counters,
	.destroy_counters = mlx5_ib_destroy_counters,
	.read_counters = mlx5_ib_read_counters,
};

static const struct uv_method *const methods[] = {mlx5_ib_flow_methods, mlx5_ib_devx_methods, NULL};
static const struct uv_driver driver = {"", &ops, methods};

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
	d->kernel.driver = &driver;
	d->kernel.ops = &ops;
	memcpy(d->kernel.name, d->device.name, sizeof(d->kernel.name));
}

int verbs_kernel_open(struct soft_context *c)
{
	struct mlx5_ib_ucontext *u = calloc(1, sizeof(*u));
	uv_lock();
	self.pid = getpid();
	c->file = u ? uv_file_new(&c->device->kernel, keep) : NULL;
	if (c->file) {
		u->ibucontext.file = c->file;
		c->file->context = &u->ibucontext;
	}
	uv_unlock();
	if (c->file)
		return 0;
	free(u);
	return ENOMEM;
}

void verbs_kernel_devx(struct soft_context *c)
{
	((struct mlx5_ib_ucontext *)c->file->context)->flags = MLX5_IB_ALLOC_UCTX_DEVX;
}

/* Adds the packets that the NIC lost since the last call to the statistic NIC_DROPS. */
static void note_drops(struct soft_device *d)
{
	uint64_t now = d->kernel.nic ? nic_drops(d->kernel.nic) : d->drops;
	verbs_count("NIC_DROPS", now - d->drops);
	d->drops = now;
}

void verbs_kernel_close(struct soft_context *c)
{
	struct soft_device *d = c->device;
	uv_lock();
	note_drops(d);
	uv_close(c->file);
	if (!d->kernel.nic)
		d->drops = 0;
	uv_unlock();
}

/* The flows stop counting at once: the objects of the kernel go with the device. */
void verbs_kernel_lose(struct soft_device *d)
{
	uv_lock();
	d->kernel.generation++;
	d->kernel.unplugged = false;
	for (struct uv_file *f = d->kernel.files; f; f = f->next)
		if (!f->calls)
			uv_objects_close(f);
	uv_unlock();
}

int verbs_kernel_call(struct ibv_context *context, struct kernel_call *call)
{
	struct soft_context *c = verbs_context_of(context);
	struct soft_device *d = c->device;
	if (call->err)
		return call->err;
	call->header.length = sizeof(call->header) + call->header.num_attrs * sizeof(call->attr[0]);
	uv_lock();
	int err = uv_lost(c->file) ? EIO : uv_ioctl(c->file, &self, RDMA_VERBS_IOCTL, (uintptr_t)call); /* lost: its objects are gone */
	note_drops(d);
	uv_unlock();
	return err;
}

int verbs_kernel_destroy(struct ibv_context *context, uint16_t object, uint16_t method, uint16_t id, uint64_t handle)
{
	struct kernel_call call = KERNEL_CALL(object, method);
	kernel_object(&call, id, handle);
	return verbs_kernel_call(context, &call);
}

struct uv_qp *verbs_kernel_qp(struct ibv_context *context, uint32_t type)
{
	struct uv_file *file = verbs_context_of(context)->file;
	struct uv_call call = {.file = file, .task = &self, .device = file->device};
	struct uv_object *o = NULL;
	uv_lock();
	if (!uv_object_new(&call, UVERBS_OBJECT_QP, sizeof(struct uv_qp), &o)) {
		o->committed = true;
		((struct uv_qp *)o)->type = type;
	}
	uv_unlock();
	return (struct uv_qp *)o;
}

/* A lost device has destroyed the object. */
int verbs_kernel_qp_end(struct ibv_context *context, struct uv_qp *qp)
{
	int err = 0;
	uv_lock();
	if (!uv_lost(verbs_context_of(context)->file))
		err = uv_object_destroy(&qp->object, NULL);
	uv_unlock();
	return err;
}
