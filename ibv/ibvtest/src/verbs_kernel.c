/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_kernel.c: the library as the front of the uverbs kernel in software (uverbs/), which is linked into it. The
 * kernel has the flows, the counters and the objects of DevX, makes the checks and returns the errnos. Queue pairs,
 * completion queues and their memory are the library's. The kernel knows of a queue pair its type and its uses. */
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

#include "uverbs/efa_ib.h"
#include "uverbs/mlx5_ib_flow.h"
#include "uverbs/uverbs_core.h"
#include "verbs_data.h"
#include "verbs_kernel.h"

/* The objects of the kernel end before the library's, or with the device. */
static int destroy_cq(struct uv_cq *cq, struct uv_call *call)
{
	(void)call;
	((struct soft_cq *)(uintptr_t)cq->object.user_handle)->kernel = NULL;
	return 0;
}

/* Outstanding requests stay outstanding, and the peers get no reply. */
static int destroy_qp(struct uv_qp *qp, struct uv_call *call)
{
	struct soft_qp *q = (struct soft_qp *)(uintptr_t)qp->object.user_handle;
	(void)call;
	q->kernel = NULL;
	q->card.gone = true;
	q->card.wake = RDMA_NEVER;
	return 0;
}

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
	.destroy_cq = destroy_cq,
	.destroy_qp = destroy_qp,
	.size_ib_comp_cntr = sizeof(struct efa_comp_cntr),
	.query_comp_cntr_caps = efa_query_comp_cntr_caps,
	.create_comp_cntr = efa_create_comp_cntr,
	.destroy_comp_cntr = efa_destroy_comp_cntr,
	.set_comp_cntr = efa_set_comp_cntr,
	.inc_comp_cntr = efa_inc_comp_cntr,
	.qp_attach_comp_cntr = efa_qp_attach_comp_cntr,
};

static const struct uv_method *const methods[] = {mlx5_ib_flow_methods, mlx5_ib_devx_methods, efa_comp_cntr_methods, NULL};
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
	int err = ENOMEM;
	uv_lock();
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

int verbs_kernel_destroy(struct ibv_context *context, uint16_t object, uint16_t method, uint16_t id, uint64_t handle)
{
	struct kernel_call call = KERNEL_CALL(object, method);
	kernel_object(&call, id, handle);
	return verbs_kernel_call(context, &call);
}

/* Under the lock, as its callers. */
static struct uv_object *object(struct soft_context *c, uint16_t type, size_t size, void *element,
				int (*destroy)(struct uv_object *, struct uv_call *))
{
	struct uv_call call = {.file = c->file, .task = &self, .device = c->file->device};
	struct uv_object *o = NULL;
	if (uv_object_new(&call, type, size, &o))
		return NULL;
	o->committed = true;
	o->user_handle = (uintptr_t)element;
	o->destroy = destroy;
	return o;
}

bool verbs_kernel_cq(struct soft_cq *c)
{
	c->kernel = (struct uv_cq *)object(verbs_context_of(c->cq.context), UVERBS_OBJECT_CQ, sizeof(struct uv_cq), c, uv_cq_destroy);
	if (c->kernel)
		c->cq.handle = c->kernel->object.handle;
	return c->kernel;
}

bool verbs_kernel_qp(struct soft_qp *q)
{
	q->kernel = (struct uv_qp *)object(verbs_context_of(q->qp.context), UVERBS_OBJECT_QP, sizeof(struct uv_qp), q, uv_qp_destroy);
	if (!q->kernel)
		return false;
	q->qp.handle = q->kernel->object.handle;
	q->kernel->type = q->qp.qp_type;
	q->kernel->send_cq = ((struct soft_cq *)q->qp.send_cq)->kernel;
	q->kernel->recv_cq = ((struct soft_cq *)q->qp.recv_cq)->kernel;
	q->kernel->send_cq->object.uses++;
	q->kernel->recv_cq->object.uses++;
	return true;
}
