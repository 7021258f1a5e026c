/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_async.c: asynchronous queries. Each runs on a thread of its own. Its result is a message
 * on a socket, behind its wr_id, as it is a message on the kernel's file (DEVX_ASYNC_CMD_FD).
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mlx5.h"

enum { MOST_BYTES_IN_USE = 1 << 20 }; /* the kernel's MAX_ASYNC_BYTES_IN_USE */

/* completions is the struct behind the public struct, which is its first member. */
struct completions {
	struct mlx5dv_devx_cmd_comp public;
	struct ibv_context *context;
	int from;         /* the end to which results are written */
	unsigned pending; /* queries that run */
	size_t in_use;    /* bytes of unread results, and of results that will come */
};

/* query is a command on its way, and its result. */
struct query {
	struct completions *to;
	struct mlx5dv_devx_obj *obj;
	size_t inlen, outlen;
	uint8_t *in; /* behind the result, in the same memory */
	struct mlx5dv_devx_async_cmd_hdr answer;
};

/* Of all counts of this file. changed: one has become less. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

MLX5_PUBLIC struct mlx5dv_devx_cmd_comp *mlx5dv_devx_create_cmd_comp(struct ibv_context *context);
MLX5_PUBLIC void mlx5dv_devx_destroy_cmd_comp(struct mlx5dv_devx_cmd_comp *comp);
MLX5_PUBLIC int mlx5dv_devx_obj_query_async(struct mlx5dv_devx_obj *obj, const void *in, size_t inlen, size_t outlen, uint64_t wr_id,
					    struct mlx5dv_devx_cmd_comp *comp);
MLX5_PUBLIC int mlx5dv_devx_get_async_cmd_comp(struct mlx5dv_devx_cmd_comp *comp, struct mlx5dv_devx_async_cmd_hdr *resp, size_t len);

struct mlx5dv_devx_cmd_comp *mlx5dv_devx_create_cmd_comp(struct ibv_context *context)
{
	int err = mlx5_enter(context, "mlx5dv_devx_create_cmd_comp"), ends[2];
	struct completions *c;

	if (!err && !mlx5_ops(context->device)->is_devx(context))
		err = EINVAL;
	if (err)
		return mlx5_no_object(err);
	c = calloc(1, sizeof *c);
	if (!c)
		return mlx5_no_object(ENOMEM);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) {
		err = errno;
		free(c);
		return mlx5_no_object(err);
	}
	c->context = context;
	c->public.fd = ends[0];
	c->from = ends[1];
	return &c->public;
}

/* Running queries run to their end, and their results are dropped. */
void mlx5dv_devx_destroy_cmd_comp(struct mlx5dv_devx_cmd_comp *comp)
{
	struct completions *c = (struct completions *)comp;

	mlx5_called("mlx5dv_devx_destroy_cmd_comp");
	shutdown(c->public.fd, SHUT_RDWR); /* a writer that waits for room ends */
	pthread_mutex_lock(&lock);
	while (c->pending)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	close(c->public.fd);
	close(c->from);
	free(c);
}

void mlx5_async_drain(struct mlx5dv_devx_obj *obj)
{
	pthread_mutex_lock(&lock);
	while (obj->queries)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

/* If the output has no status, run sets one: for a command that did not reach firmware the kernel
 * fills in the status that firmware would return. */
static void *run(void *arg)
{
	struct query *q = arg;
	int err = mlx5_query_run(q->obj, q->in, q->inlen, q->answer.out_data, q->outlen);

	if (err && !q->answer.out_data[0])
		mlx5_answer(q->answer.out_data, q->outlen, MLX5_STATUS_INT_ERR, 0);
	pthread_mutex_lock(&lock);
	q->obj->queries--;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	/* send waits for room, and fails only when the reading end is closed */
	send(q->to->from, &q->answer, sizeof q->answer + q->outlen, MSG_NOSIGNAL);
	pthread_mutex_lock(&lock);
	q->to->pending--;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	free(q);
	return NULL;
}

static struct query *new_query(struct completions *to, struct mlx5dv_devx_obj *obj, const void *in, size_t inlen, size_t outlen, uint64_t wr_id)
{
	struct query *q = calloc(1, sizeof *q + outlen + inlen);

	if (!q)
		return NULL;
	q->to = to;
	q->obj = obj;
	q->inlen = inlen;
	q->outlen = outlen;
	q->answer.wr_id = wr_id;
	q->in = q->answer.out_data + outlen;
	memcpy(q->in, in, inlen);
	return q;
}

/* take counts a query in, if there is room for its result. */
static int take(struct completions *c, struct mlx5dv_devx_obj *obj, size_t outlen)
{
	int err = 0;

	pthread_mutex_lock(&lock);
	if (c->in_use + outlen > MOST_BYTES_IN_USE) {
		err = EAGAIN;
	} else {
		c->in_use += outlen;
		c->pending++;
		obj->queries++;
	}
	pthread_mutex_unlock(&lock);
	return err;
}

static void give_back(struct completions *c, struct mlx5dv_devx_obj *obj, size_t outlen)
{
	pthread_mutex_lock(&lock);
	c->in_use -= outlen;
	c->pending--;
	obj->queries--;
	pthread_mutex_unlock(&lock);
}

/* The process's signals are not for these threads. */
static int start(struct query *q)
{
	sigset_t all, before;
	pthread_t thread;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&thread, NULL, run, q);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!err)
		pthread_detach(thread);
	return err;
}

int mlx5dv_devx_obj_query_async(struct mlx5dv_devx_obj *obj, const void *in, size_t inlen, size_t outlen, uint64_t wr_id,
				struct mlx5dv_devx_cmd_comp *comp)
{
	struct completions *c = (struct completions *)comp;
	int err = mlx5_enter(obj->context, "mlx5dv_devx_obj_query_async");
	struct query *q = NULL;

	if (!err && c->context != obj->context)
		err = EBADF; /* the file belongs to another context */
	if (!err)
		err = mlx5_query_admit(obj, in, inlen, outlen);
	if (!err)
		err = take(c, obj, outlen);
	if (!err) {
		q = new_query(c, obj, in, inlen, outlen, wr_id);
		err = q ? start(q) : ENOMEM;
		if (err) {
			give_back(c, obj, outlen);
			free(q);
		}
	}
	if (err)
		errno = err;
	return err;
}

/* One read: a result that does not fit stays (ENOSPC), as in the kernel. */
int mlx5dv_devx_get_async_cmd_comp(struct mlx5dv_devx_cmd_comp *comp, struct mlx5dv_devx_async_cmd_hdr *resp, size_t len)
{
	struct completions *c = (struct completions *)comp;
	int err = mlx5_enter(c->context, "mlx5dv_devx_get_async_cmd_comp");
	ssize_t n;

	if (err)
		return err;
	n = recv(c->public.fd, resp, len, MSG_PEEK | MSG_TRUNC);
	if (n > (ssize_t)len)
		return ENOSPC;
	if (n > 0)
		n = recv(c->public.fd, resp, len, 0);
	if (n < 0)
		return errno;
	if (n < (ssize_t)sizeof *resp)
		return EINVAL;
	pthread_mutex_lock(&lock);
	c->in_use -= n - sizeof *resp;
	pthread_mutex_unlock(&lock);
	return 0;
}
