/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_prm.h: a ConnectX as its Programmer's Reference Manual (PRM) describes it: the layout of commands and
 * matches, and the firmware that runs the commands. The driver is in uverbs/,
 * so it knows neither libibverbs nor uverbs.
 *
 * Firmware that refuses a command writes a status and a syndrome into the command's output, and the functions return
 * EREMOTEIO. Our syndrome says at which bit of the input (MLX5_SYNDROME_BIT + n) or of the lengths
 * (MLX5_SYNDROME_LENGTH) firmware stopped; a real syndrome is a number that only its vendor can read. Firmware is
 * strict: a reserved bit that is set is refused.
 */
#ifndef IBVTEST_MLX5_PRM_H
#define IBVTEST_MLX5_PRM_H

#include <stddef.h>
#include <stdint.h>

#include "nic.h"

/* mlx5_prm.c: fields of PRM structures, of up to 32 bits, none across two words. */
uint32_t mlx5_get(const uint8_t *prm, unsigned bit, unsigned width);
void mlx5_set(uint8_t *prm, unsigned bit, unsigned width, uint32_t value);

struct mlx5_field {
	uint16_t bit, width;
};

/* mlx5_reserved finds the first bit that is set outside the fields; -1 when none is. */
int mlx5_reserved(const uint8_t *prm, size_t size, const struct mlx5_field *fields, unsigned n);

enum {
	MLX5_STATUS_OK = 0x00,
	MLX5_STATUS_INT_ERR = 0x01,
	MLX5_STATUS_BAD_OP = 0x02,
	MLX5_STATUS_BAD_PARAM = 0x03,
	MLX5_STATUS_BAD_RES_STATE = 0x09,
	MLX5_STATUS_NO_RES = 0x0f,
	MLX5_STATUS_BAD_INPUT_LEN = 0x50,
	MLX5_STATUS_BAD_OUTPUT_LEN = 0x51,

	MLX5_SYNDROME_BIT = 0x1b000000,
	MLX5_SYNDROME_LENGTH = 0x1e000000,

	MLX5_CMD_QUERY_HCA_CAP = 0x100,
	MLX5_CMD_ALLOC_FLOW_COUNTER = 0x939,
	MLX5_CMD_QUERY_FLOW_COUNTER = 0x93b,

	MLX5_COMMAND_OUT = 16, /* bytes of status and syndrome, and of the output behind them */
};

/* mlx5_answer writes a command's status; 0, or EREMOTEIO. */
int mlx5_answer(void *out, size_t outlen, uint8_t status, uint32_t syndrome);

/* mlx5_firmware.c. Each command sets all of out, which has outlen bytes, 16 at least. */

/* mlx5_counters is the object of ALLOC_FLOW_COUNTER: one counter, or a bulk of them. */
struct mlx5_counters {
	uint32_t id;      /* of the first counter */
	unsigned n, size; /* counters; the size that offsets are checked against: 0 for a single one */
	int used;         /* a flow ever counted in it, atomic: else all is 0 */
	struct nic_counter counter[];
};

/* mlx5_copy_counters copies n counters of one instant, as nic_counters_copy does. */
typedef int mlx5_copy_counters(void *arg, struct nic_counter *from, struct nic_counter *to, unsigned n, int clear);

int mlx5_alloc_flow_counter(const uint8_t *in, size_t inlen, void *out, size_t outlen, struct mlx5_counters **made);
int mlx5_query_flow_counter(struct mlx5_counters *counters, const uint8_t *in, size_t inlen, void *out, size_t outlen,
			    mlx5_copy_counters *copy, void *arg);
int mlx5_query_hca_cap(const uint8_t *in, size_t inlen, void *out, size_t outlen);

/* mlx5_match.c: struct fte_match_param as a nic_match. EINVAL for a mask that the NIC cannot
 * match: reserved bits, sections that criteria does not name, contradictions. */
enum { MLX5_MATCH_BYTES = 512 };

int mlx5_match_mask(const uint8_t *mask, uint8_t criteria);
int mlx5_match(const uint8_t *mask, const uint8_t *value, struct nic_match *match);
int mlx5_match_multicast(const uint8_t *mask, const uint8_t *value);

#endif
