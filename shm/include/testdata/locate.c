/* Prints where the mirror of an instance is, and the result of opening it:
 *
 *     locate INSTANCE [OWNER] */
#include "flowtally.h"

#include <stdio.h>

/* A program with the privileges of its file cannot look at itself, and takes no option from its environment. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "detect_leaks=0"; }

int main(int argc, char **argv) {
	char path[4096];
	ft_options options = {0, 0};
	ft_reader r;
	if (argc < 2) return 2;
	if (argc > 2) {
		options.trust_owner = 1;
		options.owner = (uid_t)strtoul(argv[2], NULL, 10);
	}
	int err = ft_locate(argv[1], &options, path, sizeof path);
	if (!err) {
		printf("%s ", path);
		err = ft_open(&r, path, &options);
		if (!err) ft_close(&r);
	}
	printf("%d\n", err);
	/* A buffer of any smaller size is refused and not overrun: the sanitizer looks. */
	for (size_t n = 0; !err && n <= strlen(path); n++) {
		char *tight = (char *)malloc(n + 1);
		if (tight == NULL || ft_locate(argv[1], &options, tight, n) != FT_ERR_ARGUMENT) return 1;
		free(tight);
	}
	return 0;
}
