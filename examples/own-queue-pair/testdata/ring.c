/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts a ring of 8 entries, compressed by HASH if there is an argument. Each step of standard
 * input is the number of polled completions, and the 512 bytes of the ring. Prints the result, the
 * words, the missed completions and those that can be polled. */
#include "flowtally_ring.h"

#include <inttypes.h>
#include <stdio.h>

static _Alignas(64) unsigned char entries[8 * 64];

int main(int argc, char **argv) {
	uint64_t counts[2] = {0, 0};
	ft_words words;
	ft_ring ring;
	int32_t polled;
	(void)argv;
	memset(&words, 0, sizeof words);
	words.words = counts;
	words.limit = UINT64_MAX;
	if (ft_ring_open(&ring, entries, 8, 64, argc > 1 ? FT_RING_HASH : 0)) return 1;
	while (fread(&polled, sizeof polled, 1, stdin) == 1 && fread(entries, sizeof entries, 1, stdin) == 1) {
		const int err = ft_ring_count(&ring, polled, &words);
		printf("%s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu32 "\n",
		       err == FT_ERR_MISSED ? "missed" : err == FT_ERR_CORRUPT ? "corrupt" : err ? "error" : "ok", counts[0], counts[1],
		       ring.missed, ft_ring_ready(&ring));
	}
	return 0;
}
