/* Lists the counters of a mirror and looks names up, while a writer exchanges all of them:
 * each counter, of a0 to aN-1, is in each list once, and is found by its name. */
#include "flowtally.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { FLOWS = 3000 };

static unsigned char times[FLOWS];

/* How many flows the list has; each more than once counts as none. */
static unsigned int list(const ft_reader *r) {
	ft_list l = {0, 0};
	unsigned int found = 0;
	while (ft_list_again(r, &l)) {
		memset(times, 0, sizeof times);
		for (uint32_t i = 0; i < ft_capacity(r); i++) {
			ft_entry e;
			if (ft_get_entry(r, i, &e) != FT_OK) continue;
			const unsigned long n = strtoul(e.name + 1, NULL, 10);
			if (n < FLOWS && times[n] < 2) times[n]++;
		}
	}
	for (int n = 0; n < FLOWS; n++) found += times[n] == 1;
	return found;
}

int main(int argc, char **argv) {
	ft_reader r;
	ft_status first, now;
	ft_handle h;
	int err;
	if (argc != 3) return 2;
	const uint64_t changes = strtoull(argv[2], NULL, 10);
	if ((err = ft_open(&r, argv[1], NULL)) || (err = ft_get_status(&r, &first))) return err;
	unsigned int lists = 0;
	do {
		const unsigned int found = list(&r);
		if (found != FLOWS) {
			printf("list %u has %u of %d flows once\n", lists, found, FLOWS);
			return 1;
		}
		for (int i = 0; i < 10; i++)
			if ((err = ft_lookup(&r, i % 2 ? "a7" : "a2999", &h)) && err != FT_ERR_BUSY) {
				printf("looking up beside list %u: %s\n", lists, ft_strerror(err));
				return 1;
			}
		lists++;
		if ((err = ft_get_status(&r, &now))) return err;
	} while (now.catalogue_changes - first.catalogue_changes < changes);
	printf("%u lists\n", lists);
	ft_close(&r);
	return 0;
}
