/* Takes reserved words and prints the result, the time until the words can be taken, and the
 * number of descriptors and of mappings of memfds that the process has now more than before.
 *
 *     take MIRROR NAME [signals | one]
 *
 * With the words it counts one completion, and waits for the end of standard input. signals: a signal
 * interrupts it each 5 ms. one: it can have one descriptor more. */
#define _DEFAULT_SOURCE
#include "flowtally_words.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>

static void ignore(int number) { (void)number; }

static void interrupt_often(void) {
	struct sigaction a;
	const struct itimerval each = {{0, 5000}, {0, 5000}};
	memset(&a, 0, sizeof a);
	a.sa_handler = ignore;
	a.sa_flags = SA_RESTART;
	(void)sigaction(SIGALRM, &a, NULL);
	(void)setitimer(ITIMER_REAL, &each, NULL);
}

static void leave_one_descriptor(void) {
	const int next = dup(0);
	const struct rlimit most = {(rlim_t)next + 1, (rlim_t)next + 1};
	(void)close(next);
	(void)setrlimit(RLIMIT_NOFILE, &most);
}

static int descriptors(void) {
	int n = 0;
	DIR *d = opendir("/proc/self/fd");
	if (d == NULL) return -1;
	while (readdir(d) != NULL) n++;
	closedir(d);
	return n;
}

static int mappings(void) {
	char line[4096];
	int n = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	if (f == NULL) return -1;
	while (fgets(line, sizeof line, f) != NULL) n += strstr(line, "memfd:") != NULL;
	fclose(f);
	return n;
}

int main(int argc, char **argv) {
	ft_words w;
	if (argc != 3 && argc != 4) return 2;
	if (argc == 4 && strcmp(argv[3], "signals") == 0) interrupt_often();
	if (argc == 4 && strcmp(argv[3], "one") == 0) leave_one_descriptor();
	const int fds = descriptors(), maps = mappings();
	const int err = ft_words_take(&w, argv[1], argv[2], 0, NULL);
	const int refused = err != 0 && w.words == NULL;
	printf("%d %" PRId64 " %d %d %s\n", err, w.wait, descriptors() - fds, mappings() - maps, ft_strerror(err));
	fflush(stdout);
	if (err) {
		ft_words_close(&w);
		ft_words_add(&w, 0, 0);
		return refused ? 0 : 1;
	}
	ft_words_add(&w, 1, 0);
	while (getchar() != EOF) {
	}
	ft_words_close(&w);
	return 0;
}
