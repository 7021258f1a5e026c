/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_firmware.c: the firmware commands ALLOC_FLOW_COUNTER, QUERY_FLOW_COUNTER and QUERY_HCA_CAP. The kernel
 * checks the opcode and the object of a command before (EINVAL).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mlx5_prm.h"

enum {
	TRAFFIC_COUNTER_BYTES = 16,
	HCA_CAP_BYTES = 0x800, /* of a page; callers may leave room for less than the PRM's 0x1000, as rdma-core's tests do */

	BULK_UNIT = 128,
	BULK_MASK = 0x1f, /* bulks of 128 to 2048 */
	BULK_LOG_MAX = 15,
	BULK_LOG_GRANULARITY = 2,
	QUERY_UNIT = 4, /* a bulk is queried from and for a multiple of 4 */

	FLEX_PARSER_ICMP = 3 << 8, /* ICMP and ICMPv6, which misc_3 matches */
};

#define HEADER_FIELDS { 0x00, 16 } /* opcode */, { 0x10, 16 } /* uid, of the kernel */, { 0x30, 16 } /* op_mod */

static const struct mlx5_field alloc_fields[] = { HEADER_FIELDS, { 0x73, 5 }, { 0x78, 8 } };
static const struct mlx5_field query_fields[] = { HEADER_FIELDS, { 0xc0, 1 }, { 0xc2, 30 }, { 0xe0, 32 } };
static const struct mlx5_field hca_cap_fields[] = { HEADER_FIELDS };

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* firmware checks the form of a command: 0 if it is accepted, else EREMOTEIO and the output in
 * out. */
static int firmware(const uint8_t *in, size_t inlen, size_t size, const struct mlx5_field *fields, unsigned n, void *out,
		    size_t outlen, size_t needed)
{
	int bit;

	memset(out, 0, outlen);
	if (inlen < size)
		return mlx5_answer(out, outlen, MLX5_STATUS_BAD_INPUT_LEN, MLX5_SYNDROME_LENGTH + size);
	bit = mlx5_reserved(in, inlen, fields, n);
	if (bit >= 0)
		return mlx5_answer(out, outlen, MLX5_STATUS_BAD_PARAM, MLX5_SYNDROME_BIT + bit);
	if (outlen < needed)
		return mlx5_answer(out, outlen, MLX5_STATUS_BAD_OUTPUT_LEN, MLX5_SYNDROME_LENGTH + needed);
	return 0;
}

static int refuse(void *out, size_t outlen, unsigned bit)
{
	return mlx5_answer(out, outlen, MLX5_STATUS_BAD_PARAM, MLX5_SYNDROME_BIT + bit);
}

/* Counters are numbered over all devices, a bulk from a multiple of QUERY_UNIT on. */
static uint32_t number_counters(unsigned n)
{
	static uint32_t next = QUERY_UNIT;

	return __atomic_fetch_add(&next, (n + QUERY_UNIT - 1) / QUERY_UNIT * QUERY_UNIT, __ATOMIC_RELAXED);
}

int mlx5_alloc_flow_counter(const uint8_t *in, size_t inlen, void *out, size_t outlen, struct mlx5_counters **made)
{
	unsigned log = 0, bulk = 0, size;
	struct mlx5_counters *c;
	int err = firmware(in, inlen, 16, alloc_fields, COUNT(alloc_fields), out, outlen, MLX5_COMMAND_OUT);

	if (err)
		return err;
	log = mlx5_get(in, 0x73, 5);
	bulk = mlx5_get(in, 0x78, 8);
	if (log > BULK_LOG_MAX || (log && bulk))
		return refuse(out, outlen, 0x73);
	if (bulk & (bulk - 1) || bulk & ~BULK_MASK)
		return refuse(out, outlen, 0x78);
	size = log ? 1u << log : BULK_UNIT * bulk;
	c = calloc(1, sizeof *c + (size ? size : 1) * sizeof *c->counter);
	if (!c)
		return mlx5_answer(out, outlen, MLX5_STATUS_NO_RES, 0);
	c->size = size;
	c->n = size ? size : 1;
	c->id = number_counters(c->n);
	mlx5_set(out, 0x40, 32, c->id);
	*made = c;
	return 0;
}

static void put_counter(uint8_t *to, const struct nic_counter *c)
{
	mlx5_set(to, 0x00, 32, c->packets >> 32);
	mlx5_set(to, 0x20, 32, c->packets);
	mlx5_set(to, 0x40, 32, c->bytes >> 32);
	mlx5_set(to, 0x60, 32, c->bytes);
}

/* The counters from first on, all of one instant. A counter that no flow ever named is 0. */
static int read_counters(struct mlx5_counters *c, unsigned first, unsigned n, int clear, uint8_t *to, mlx5_copy_counters *copy,
			 void *arg)
{
	struct nic_counter *values;
	int err;

	if (!__atomic_load_n(&c->used, __ATOMIC_ACQUIRE))
		return 0;
	values = calloc(n, sizeof *values);
	if (!values)
		return ENOMEM;
	err = copy(arg, c->counter + first, values, n, clear);
	for (unsigned i = 0; i < n; i++)
		put_counter(to + i * TRAFFIC_COUNTER_BYTES, &values[i]);
	free(values);
	/* firmware does not notice that the netdev is gone: the counters keep their values */
	return err == ENODEV ? 0 : err;
}

int mlx5_query_flow_counter(struct mlx5_counters *c, const uint8_t *in, size_t inlen, void *out, size_t outlen,
			    mlx5_copy_counters *copy, void *arg)
{
	uint32_t id = mlx5_get(in, 0xe0, 32), asked = mlx5_get(in, 0xc2, 30), n = asked ? asked : 1;
	int err = firmware(in, inlen, 32, query_fields, COUNT(query_fields), out, outlen,
			   MLX5_COMMAND_OUT + (size_t)n * TRAFFIC_COUNTER_BYTES);

	if (err)
		return err;
	if (n > c->id + c->n - id || asked % QUERY_UNIT)
		return refuse(out, outlen, 0xc2);
	if (asked && id % QUERY_UNIT)
		return refuse(out, outlen, 0xe0);
	return read_counters(c, id - c->id, n, mlx5_get(in, 0xc0, 1), (uint8_t *)out + MLX5_COMMAND_OUT, copy, arg);
}

int mlx5_query_hca_cap(const uint8_t *in, size_t inlen, void *out, size_t outlen)
{
	uint8_t *cap = (uint8_t *)out + MLX5_COMMAND_OUT;
	int err = firmware(in, inlen, 16, hca_cap_fields, COUNT(hca_cap_fields), out, outlen, MLX5_COMMAND_OUT + HCA_CAP_BYTES);

	if (err)
		return err;
	switch (mlx5_get(in, 0x30, 16) >> 1) { /* the lowest bit selects the maximum or the current value */
	case 0x00: /* general device */
		mlx5_set(cap, 0x20, 1, 1); /* hca_cap_2 */
		mlx5_set(cap, 0x310, 8, BULK_MASK);
		mlx5_set(cap, 0x540, 32, FLEX_PARSER_ICMP);
		return 0;
	case 0x01 ... 0x1f: /* Ethernet, ODP, atomics, RoCE, flow tables and so on: the device offers nothing of them */
		return 0;
	case 0x20: /* general device, second page */
		mlx5_set(cap, 0x253, 5, BULK_LOG_MAX);
		mlx5_set(cap, 0x25b, 5, BULK_LOG_GRANULARITY);
		return 0;
	}
	return refuse(out, outlen, 0x30);
}
