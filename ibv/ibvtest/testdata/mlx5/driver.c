/* SPDX-License-Identifier: Apache-2.0
 *
 * driver.c: the software libmlx5's reading of match parameters behind a line protocol, for
 * mlx5_match_linux_test.go: struct fte_match_param in hex, shorter ones padded with 0.
 *
 *	mask CRITERIA MASK      may a matcher have it?
 *	match MASK VALUE        multicast VALUE MASK, struct nic_key in hex
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "mlx5_prm.h"

static void unhex(const char *text, uint8_t *to)
{
	unsigned byte;

	memset(to, 0, MLX5_MATCH_BYTES);
	for (unsigned n = 0; n < MLX5_MATCH_BYTES && sscanf(text + 2 * n, "%2x", &byte) == 1; n++)
		to[n] = byte;
}

static void hex(const void *key)
{
	for (size_t i = 0; i < sizeof(struct nic_key); i++)
		printf("%02x", ((const uint8_t *)key)[i]);
}

int main(void)
{
	static char line[1 << 13], one[2 * MLX5_MATCH_BYTES + 1], two[2 * MLX5_MATCH_BYTES + 1];
	uint8_t mask[MLX5_MATCH_BYTES], value[MLX5_MATCH_BYTES];
	struct nic_match match;
	unsigned criteria;

	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fgets(line, sizeof line, stdin)) {
		int err = ENOSYS;

		if (sscanf(line, "mask %u %1024s", &criteria, one) == 2) {
			unhex(one, mask);
			err = mlx5_match_mask(mask, criteria);
		} else if (sscanf(line, "match %1024s %1024s", one, two) == 2) {
			unhex(one, mask);
			unhex(two, value);
			err = mlx5_match(mask, value, &match);
			if (!err) {
				printf("ok %d ", mlx5_match_multicast(mask, value));
				hex(&match.value);
				printf(" ");
				hex(&match.mask);
				printf("\n");
				continue;
			}
		}
		printf(err ? "err %d\n" : "ok\n", err);
	}
	return 0;
}
