/* Reads one counter live until it has reached a total, while its slot and its base change.
 *
 *     live MIRROR NAME TOTAL
 *
 * Each packet has 64 bytes, so every total tells whether its two words belong together; no
 * total is below the one before, or below the mirror's. Prints how often it read, and how
 * often the counter could not be read. */
#include "flowtally_live.h"

#include <inttypes.h>
#include <stdio.h>

static int fail(const char *what, int err) {
	fprintf(stderr, "%s: %d %s\n", what, err, ft_strerror(err));
	return 1;
}

int main(int argc, char **argv) {
	ft_reader r;
	ft_live_map m;
	ft_live_counter c;
	ft_counter mirrored;
	ft_handle h;
	ft_value v;
	uint64_t packets = 0, bytes = 0, last = 0, reads = 0, refused = 0;
	if (argc != 4) return 2;
	const uint64_t total = strtoull(argv[3], NULL, 10);
	int err = ft_open(&r, argv[1], NULL);
	if (err) return fail("open", err);
	err = ft_lookup(&r, argv[2], &h);
	if (!err) err = ft_counter_open(&r, h, &mirrored);
	if (err) return fail("lookup", err);
	err = ft_live_open(&m, &r, NULL);
	if (err) return fail("live open", err);
	do err = ft_live_attach(&m, &r, h, &c);
	while (err == FT_ERR_BUSY || err == FT_ERR_NO_LIVE);
	if (err) return fail("attach", err);
	printf("begun\n");
	fflush(stdout);
	while (last < total) {
		err = ft_load(&mirrored, &v);
		if (err && err != FT_ERR_BUSY) return fail("load", err);
		const uint64_t shown = err ? 0 : v.packets;
		err = ft_live(&c, &packets, &bytes);
		if (err == FT_ERR_BUSY || err == FT_ERR_NO_LIVE) {
			refused++;
			continue;
		}
		if (err) return fail("live", err);
		if (packets < last || packets < shown || packets > total || bytes != 64 * packets) {
			fprintf(stderr, "%" PRIu64 " packets, %" PRIu64 " bytes, after %" PRIu64 ", and %" PRIu64 " in the mirror\n", packets, bytes, last, shown);
			return 1;
		}
		last = packets;
		reads++;
	}
	printf("%" PRIu64 " reads, %" PRIu64 " refused\n", reads, refused);
	ft_live_close(&m);
	ft_close(&r);
	return 0;
}
