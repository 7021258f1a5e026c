/* Carries out commands, line by line, with the mirror of an instance or a path, and
 * prints the results.
 *
 *     follow MIRROR NAME
 *
 *     load       ft_named_load, and the packets
 *     quick      ft_load of the counter that was opened first
 *     follow     ft_follow
 *     all        one result of each function that looks at the mirror */
#include "flowtally_device.h"
#include "flowtally_wait.h"

#include <inttypes.h>
#include <stdio.h>

static void all(const ft_reader *r, const char *name, ft_handle h, ft_snapshot *snap, ft_cursor *cursor) {
	ft_handle found;
	ft_entry e;
	ft_counter c;
	ft_value v;
	ft_record record;
	ft_status s;
	ft_cursor fresh;
	ft_device_segment segment;
	ft_device d;
	printf("lookup %d", ft_lookup(r, name, &found));
	printf(" entry %d", ft_get_entry(r, h.index, &e));
	printf(" counter %d", ft_counter_open(r, h, &c));
	printf(" snapshot %d", ft_snapshot_take(snap));
	int err;
	while ((err = ft_cursor_next(cursor, &record)) == FT_OK) continue;
	printf(" cursor %d", err);
	printf(" fresh %d", ft_cursor_open(&fresh, r, 1));
	printf(" wait %d", ft_wait(r, h, UINT64_MAX, 0, &v));
	err = ft_device_open(&segment, r, NULL);
	if (!err) {
		err = ft_device_attach(&segment, r, h, &d);
		ft_device_close(&segment);
	}
	printf(" device %d", err);
	err = ft_get_status(r, &s);
	printf(" status %d alive %d replaced %d\n", err, s.alive, s.replaced != 0);
}

int main(int argc, char **argv) {
	ft_reader r;
	ft_named named;
	ft_handle h;
	ft_counter c;
	ft_value v;
	ft_snapshot snap;
	ft_cursor cursor;
	char line[64];
	if (argc != 3) return 2;
	(void)alarm(120);
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	int err = strchr(argv[1], '/') ? ft_open(&r, argv[1], NULL) : ft_open_instance(&r, argv[1], NULL);
	if (!err) err = ft_named_open(&r, argv[2], &named);
	if (!err) err = ft_lookup(&r, argv[2], &h);
	if (!err) err = ft_counter_open(&r, h, &c);
	if (!err) err = ft_snapshot_open(&snap, &r, NULL, 0);
	if (!err) err = ft_cursor_open(&cursor, &r, 1);
	printf("%d\n", err);
	if (err) return 1;
	while (fgets(line, sizeof line, stdin)) {
		memset(&v, 0, sizeof v);
		if (strcmp(line, "load\n") == 0) {
			err = ft_named_load(&r, &named, &v);
			printf("%d %" PRIu64 "\n", err, v.packets);
		} else if (strcmp(line, "quick\n") == 0) {
			err = ft_load(&c, &v);
			printf("%d %" PRIu64 "\n", err, v.packets);
		} else if (strcmp(line, "follow\n") == 0) {
			printf("%d\n", ft_follow(&r));
		} else {
			all(&r, argv[2], h, &snap, &cursor);
		}
	}
	ft_snapshot_close(&snap);
	ft_close(&r);
	return 0;
}
