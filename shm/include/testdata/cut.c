/* Maps a mirror under the guard, has it cut to nothing page by page from the end, and
 * reads everything after each cut: values are whole or absent, and from the first lost
 * page that was touched on the calls say so. Without the guard a SIGBUS of another
 * mapping still ends the process, which a child shows. */
#include "flowtally_device.h"

#include <stdio.h>
#include <sys/wait.h>

static int check(const ft_reader *r, ft_counter *c, const ft_value *before, uint32_t n) {
	for (uint32_t i = 0; i < n; i++) {
		ft_value v;
		const int err = c[i].seq == NULL ? FT_ERR_GONE : ft_load(&c[i], &v);
		if (err == FT_ERR_GONE) continue;
		if (err) return err;
		if (v.sampled_at != 0 && memcmp(&v, &before[i], sizeof v) != 0) return -100;
	}
	ft_status st;
	ft_snapshot s;
	ft_cursor cur;
	ft_record rec;
	if (ft_snapshot_open(&s, r, NULL, 0) != FT_OK) return -101;
	int err = ft_snapshot_take(&s);
	if (err != FT_OK && err != FT_ERR_TRUNCATED) return -102;
	ft_snapshot_close(&s);
	(void)ft_cursor_open(&cur, r, 1);
	for (int i = 0; i < 1000 && ft_cursor_next(&cur, &rec) == FT_OK; i++) continue;
	return ft_get_status(r, &st);
}

/* The same for the words that devices write: they are read, or the segment is missing. */
static int cut_segment(const ft_reader *r, const char *path) {
	ft_device_segment s;
	ft_device d[64];
	int n = 0;
	uint64_t completions, errors;
	if (ft_device_open(&s, r, NULL) != FT_OK) return -1;
	for (uint32_t i = 0; i < ft_capacity(r) && n < 64; i++) {
		const ft_handle h = {i, 1};
		if (ft_device_attach(&s, r, h, &d[n]) == FT_OK) n++;
	}
	for (int i = 0; i < n; i++)
		if (ft_device_load(&d[i], &completions, &errors) != FT_OK) return -2;
	for (size_t size = s.size; size > 0;) {
		size -= 4096;
		if (truncate(path, (off_t)size) != 0) return -3;
		for (int i = 0; i < n; i++) {
			const int err = ft_device_load(&d[i], &completions, &errors);
			if (err != FT_ERR_NO_DEVICE) return -4;
		}
	}
	ft_device_close(&s);
	if (ft_device_open(&s, r, NULL) != FT_ERR_TRUNCATED) return -5;
	return n;
}

int main(int argc, char **argv) {
	static ft_counter c[4096];
	static ft_value before[4096];
	ft_reader r;
	if (argc != 3) return 2;
	int err = ft_guard_sigbus();
	if (!err) err = ft_guard_sigbus(); /* again does nothing */
	if (!err) err = ft_open(&r, argv[1], NULL);
	if (err) return 2;
	const uint32_t n = ft_capacity(&r) < 4096 ? ft_capacity(&r) : 4096;
	for (uint32_t i = 0; i < n; i++) {
		ft_entry e;
		if (ft_get_entry(&r, i, &e) == FT_OK && ft_counter_open(&r, e.handle, &c[i]) == FT_OK) (void)ft_load(&c[i], &before[i]);
	}
	if (check(&r, c, before, n) != FT_OK) return 3;
	const int devices = cut_segment(&r, argv[2]);
	if (devices <= 0) {
		printf("segment: %d\n", devices);
		return 9;
	}
	struct stat st;
	if (stat(argv[1], &st) != 0) return 2;
	for (off_t size = st.st_size; size > 0;) {
		size -= size % 4096 ? size % 4096 : 4096;
		if (truncate(argv[1], size) != 0) return 4;
		err = check(&r, c, before, n);
		if (err != FT_OK && err != FT_ERR_TRUNCATED) {
			printf("at %lld: %d\n", (long long)size, err);
			return 5;
		}
	}
	if (err != FT_ERR_TRUNCATED) return 6;
	ft_close(&r);

	const pid_t child = fork();
	if (child == 0) {
		const int fd = open(argv[1], O_RDWR); /* empty by now */
		const volatile char *p = (const volatile char *)mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
		_exit(p[0]);
	}
	int status = 0;
	if (child < 0 || waitpid(child, &status, 0) != child) return 7;
	/* The sanitizer's own handler, where there was one before, exits instead. */
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return 8;
	printf("survived\n");
	return 0;
}
