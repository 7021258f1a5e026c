/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_calls.c: the way into libibverbs, and the record of calls.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "mlx5.h"

const struct ibvtest_device_ops *mlx5_ops(const struct ibv_device *device)
{
	return provider_ops(device);
}

/* The calls since the library was loaded: verbs by name, commands by opcode. */
static struct call {
	const char *symbol; /* a literal of this library, or NULL: the opcode counts */
	unsigned opcode;
	unsigned long calls;
} calls[32];
static pthread_mutex_t calls_lock = PTHREAD_MUTEX_INITIALIZER;

/* With the lock held; NULL when it is not there and there is no room, or is not to be added. */
static struct call *find(const char *symbol, unsigned opcode, int add)
{
	for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
		struct call *c = &calls[i];

		if (!c->symbol && !c->opcode) {
			if (!add)
				return NULL;
			c->symbol = symbol;
			c->opcode = opcode;
			return c;
		}
		if (symbol ? c->symbol && !strcmp(c->symbol, symbol) : !c->symbol && c->opcode == opcode)
			return c;
	}
	return NULL;
}

static void count(const char *symbol, unsigned opcode)
{
	struct call *c;

	pthread_mutex_lock(&calls_lock);
	c = find(symbol, opcode, 1);
	if (c)
		c->calls++;
	pthread_mutex_unlock(&calls_lock);
}

static unsigned long counted(const char *symbol, unsigned opcode)
{
	struct call *c;
	unsigned long n;

	pthread_mutex_lock(&calls_lock);
	c = find(symbol, opcode, 0);
	n = c ? c->calls : 0;
	pthread_mutex_unlock(&calls_lock);
	return n;
}

/* How often a verb of this library was called, and a command given to firmware. */
MLX5_PUBLIC unsigned long flowtally_ibvtest_calls(const char *symbol);
MLX5_PUBLIC unsigned long flowtally_ibvtest_commands(unsigned opcode);

unsigned long flowtally_ibvtest_calls(const char *symbol)
{
	return counted(symbol, 0);
}

unsigned long flowtally_ibvtest_commands(unsigned opcode)
{
	return counted(NULL, opcode);
}

void mlx5_called(const char *symbol)
{
	count(symbol, 0);
}

int mlx5_enter(struct ibv_context *context, const char *symbol)
{
	const struct ibvtest_device_ops *ops = mlx5_ops(context->device);

	mlx5_called(symbol);
	return ops ? ops->gate(context, symbol) : EOPNOTSUPP;
}

int mlx5_command(struct ibv_context *context, unsigned opcode, const char *name)
{
	count(NULL, opcode);
	return mlx5_ops(context->device)->gate(context, name);
}

void *mlx5_no_object(int err)
{
	errno = err;
	return NULL;
}
