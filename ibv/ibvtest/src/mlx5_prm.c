/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_prm.c: the PRM's structures are big-endian 32-bit words; a field is a run of bits,
 * counted from the first byte's highest.
 */
#include <errno.h>
#include <string.h>

#include "mlx5_prm.h"

static uint32_t word(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
}

static uint32_t ones(unsigned width)
{
	return width == 32 ? UINT32_MAX : (1u << width) - 1;
}

uint32_t mlx5_get(const uint8_t *prm, unsigned bit, unsigned width)
{
	return word(prm + bit / 32 * 4) >> (32 - bit % 32 - width) & ones(width);
}

void mlx5_set(uint8_t *prm, unsigned bit, unsigned width, uint32_t value)
{
	unsigned shift = 32 - bit % 32 - width;
	uint8_t *p = prm + bit / 32 * 4;
	uint32_t w = (word(p) & ~(ones(width) << shift)) | value << shift;

	p[0] = w >> 24;
	p[1] = w >> 16;
	p[2] = w >> 8;
	p[3] = w;
}

static int known(unsigned bit, const struct mlx5_field *fields, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (bit >= fields[i].bit && bit < fields[i].bit + (unsigned)fields[i].width)
			return 1;
	return 0;
}

int mlx5_reserved(const uint8_t *prm, size_t size, const struct mlx5_field *fields, unsigned n)
{
	for (unsigned bit = 0; bit < size * 8; bit++)
		if (prm[bit / 8] >> (7 - bit % 8) & 1 && !known(bit, fields, n))
			return bit;
	return -1;
}

int mlx5_answer(void *out, size_t outlen, uint8_t status, uint32_t syndrome)
{
	uint8_t answer[8] = { 0 };

	mlx5_set(answer, 0x00, 8, status);
	mlx5_set(answer, 0x20, 32, syndrome);
	memcpy(out, answer, outlen < sizeof answer ? outlen : sizeof answer);
	return status == MLX5_STATUS_OK ? 0 : EREMOTEIO;
}
