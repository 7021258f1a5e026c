/* SPDX-License-Identifier: Apache-2.0
 *
 * uverbs_event.c: the asynchronous descriptor and completion channels. Each is a pipe whose reading end the caller has,
 * with the kernel's records in it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "uverbs_core.h"

/* A driver's descriptor carries messages: a read takes one. */
static int open_messages(int *ends)
{
	int room = 8 << 20;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return errno;
	if (setsockopt(ends[1], SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room)))
		(void)setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	return 0;
}

static bool of_messages(const struct uv_object *o)
{
	return o->type >= UVERBS_ID_DRIVER_NS && o->destroy == uv_channel_close;
}

/* Frees the channels of messages that no process can read any more. The kernel does so when a descriptor is closed, of
 * which the model hears nothing. */
static void reap(struct uv_file *file)
{
	for (struct uv_object *o = file->objects, *next; o; o = next) {
		next = o->next;
		if (!of_messages(o) || !o->committed)
			continue;
		struct pollfd p = {.fd = ((struct uv_channel *)o)->write_fd};
		if (poll(&p, 1, 0) == 1 && p.revents & POLLHUP)
			(void)uv_object_destroy(o, NULL);
	}
}

int uv_channel_open(struct uv_channel *c, struct uv_call *call, uint64_t number_at, size_t number_size)
{
	const uint64_t none = UINT64_MAX;
	int p[2], err = 0;
	struct stat st;
	c->write_fd = c->read_fd = -1;
	c->number_at = number_at;
	c->number_size = number_size;
	if (c->object.type >= UVERBS_ID_DRIVER_NS) {
		reap(call->file);
		err = open_messages(p);
	} else if (pipe2(p, O_CLOEXEC)) {
		err = errno;
	}
	if (err)
		return err;
	fcntl(p[1], F_SETFL, O_NONBLOCK); /* the caller may not read: then events are lost */
	c->write_fd = p[1];
	c->read_fd = p[0];
	c->object.destroy = uv_channel_close;
	if (!syscall(SYS_newfstatat, p[0], "", &st, AT_EMPTY_PATH))
		c->inode = st.st_ino;
	return uv_copy_to_user(call->task, number_at, &none, number_size);
}

int uv_channel_give(struct uv_channel *c, struct uv_call *call)
{
	int end = c->read_fd;
	c->read_fd = of_messages(&c->object) ? -1 : fcntl(end, F_DUPFD_CLOEXEC, 0);
	int n = c->object.file->install_fd(end);
	if (n < 0)
		return -n;
	uv_object_no_handle(&c->object); /* uv_channel_get finds it */
	uint64_t number = uv_mutant("wrong_handle") ? n ^ 0x40 : n;
	return uv_copy_to_user(call->task, c->number_at, &number, c->number_size);
}

int uv_channel_close(struct uv_object *object, struct uv_call *call)
{
	struct uv_channel *c = (struct uv_channel *)object;
	(void)call;
	if (object->file->async == c)
		object->file->async = NULL;
	if (c->write_fd >= 0)
		syscall(SYS_close, c->write_fd);
	if (c->read_fd >= 0)
		syscall(SYS_close, c->read_fd);
	c->write_fd = c->read_fd = -1;
	return 0;
}

/* The channel whose pipe is the caller's descriptor fd. The errnos are the errnos of lookup_get_fd_uobject. */
int uv_channel_get(const struct uv_call *call, uint16_t type, int64_t fd, struct uv_object **object)
{
	struct stat st;
	if (fd < 0 || fd > 0x7fffffff)
		return EINVAL;
	if (uv_fstat(call->task->pid, fd, &st))
		return EBADF;
	for (struct uv_object *o = call->file->objects; o; o = o->next)
		if (o->type == type && o->committed && ((struct uv_channel *)o)->inode == st.st_ino &&
		    (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode))) {
			*object = o;
			return 0;
		}
	return EBADF;
}

static bool report(struct uv_channel *c, const void *event, size_t n)
{
	return c && c->write_fd >= 0 && write(c->write_fd, event, n) == (ssize_t)n;
}

/* Takes the records that the caller has not read out of a channel, and drops the records of an element. The other records
 * go back in their order. Returns the number of dropped records. splice does not wait if the caller reads meanwhile. */
static uint32_t release(struct uv_channel *c, size_t size, bool (*of)(const void *record, uint64_t element), uint64_t element)
{
	struct ib_uverbs_async_event_desc record;
	uint32_t released = 0;
	int p[2], unread = 0;
	if (!c || c->read_fd < 0 || syscall(SYS_ioctl, c->read_fd, FIONREAD, &unread) || !unread || pipe2(p, O_CLOEXEC | O_NONBLOCK))
		return 0;
	while (splice(c->read_fd, NULL, p[1], NULL, 1 << 16, SPLICE_F_NONBLOCK) > 0)
		;
	while (read(p[0], &record, size) == (ssize_t)size) {
		if (of(&record, element))
			released++;
		else
			(void)report(c, &record, size);
	}
	syscall(SYS_close, p[0]);
	syscall(SYS_close, p[1]);
	return released;
}

static bool async_event(struct uv_file *file, uint32_t type, uint64_t element)
{
	struct ib_uverbs_async_event_desc e = {.element = element, .event_type = type};
	return report(file->async, &e, sizeof(e));
}

void uv_async_event(struct uv_file *file, uint32_t type, uint64_t element)
{
	(void)async_event(file, type, element);
}

void uv_cq_event(struct uv_cq *cq, uint32_t type)
{
	cq->async_events_reported += async_event(cq->object.file, type, cq->object.user_handle);
}

void uv_qp_event(struct uv_qp *qp, uint32_t type)
{
	qp->async_events_reported += async_event(qp->object.file, type, qp->object.user_handle);
}

void uv_comp_event(struct uv_cq *cq)
{
	struct ib_uverbs_comp_event_desc e = {.cq_handle = cq->object.user_handle};
	cq->comp_events_reported += report(cq->channel, &e, sizeof(e));
}

/* The records of events of CQs, of QPs, and of completions. */
static bool of_cq(const void *record, uint64_t element)
{
	const struct ib_uverbs_async_event_desc *e = record;
	return e->element == element && e->event_type == IB_EVENT_CQ_ERR;
}

static bool of_qp(const void *record, uint64_t element)
{
	const struct ib_uverbs_async_event_desc *e = record;
	return e->element == element && e->event_type > IB_EVENT_CQ_ERR && e->event_type < IB_EVENT_DEVICE_FATAL;
}

static bool of_completions(const void *record, uint64_t element)
{
	return ((const struct ib_uverbs_comp_event_desc *)record)->cq_handle == element;
}

void uv_cq_release_events(struct uv_cq *cq)
{
	uint64_t handle = cq->object.user_handle;
	cq->comp_events_reported -= release(cq->channel, sizeof(struct ib_uverbs_comp_event_desc), of_completions, handle);
	cq->async_events_reported -= release(cq->object.file->async, sizeof(struct ib_uverbs_async_event_desc), of_cq, handle);
}

void uv_qp_release_events(struct uv_qp *qp)
{
	qp->async_events_reported -=
		release(qp->object.file->async, sizeof(struct ib_uverbs_async_event_desc), of_qp, qp->object.user_handle);
}

static int async_alloc(struct uv_call *call)
{
	struct uv_channel *c = (struct uv_channel *)uv_attr_object(call, UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE);
	if (!call->file->async)
		call->file->async = c;
	return 0;
}

static const struct uv_attr_spec async_alloc_attrs[] = {
	UV_ATTR_FD(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, UVERBS_OBJECT_ASYNC_EVENT, UV_NEW, UV_MANDATORY), {0}};

const struct uv_method uv_event_methods[] = {
	{UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC, "ASYNC_EVENT_ALLOC", async_alloc_attrs, async_alloc},
	{0}};
