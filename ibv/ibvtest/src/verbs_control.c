/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_control.c: changes of a device at run time, by lines on a FIFO:
 *
 *     fatal DEVICE      IBV_EVENT_DEVICE_FATAL; every command of its contexts returns EIO
 *     remove DEVICE     the same, and the device leaves the list
 *     silent DEVICE     every command returns EIO without an event; memory keeps its last values
 *     return DEVICE     it can be opened again; contexts that were open stay dead
 *     port_down DEVICE  IBV_EVENT_PORT_ERR, the port's state is DOWN
 *     port_up DEVICE    IBV_EVENT_PORT_ACTIVE, the port's state is its netdev's
 *
 * The FIFO is opened for reading and writing: it has no end when a writer goes. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "verbs_soft.h"

/* Changed by configure and close only, which the table's lock or the library's end
 * serialises. */
static struct {
	char *path;
	pthread_t thread;
	bool running;
	int fifo, stop;
	void (*obey)(const char *word, const char *device);
} control;

static void line(char *text)
{
	char *rest = NULL;
	const char *word = strtok_r(text, " \t\r", &rest);
	const char *name = word ? strtok_r(NULL, " \t\r", &rest) : NULL;
	if (name)
		control.obey(word, name);
	else if (word)
		fprintf(stderr, "ibvtest: control: %s names no device\n", word);
}

static void *run(void *arg)
{
	struct pollfd fds[2] = {{.fd = control.fifo, .events = POLLIN}, {.fd = control.stop, .events = POLLIN}};
	char text[512];
	size_t have = 0;
	(void)arg;
	for (;;) {
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			return NULL;
		if (fds[1].revents)
			return NULL;
		ssize_t n = read(control.fifo, text + have, sizeof(text) - have);
		if (n <= 0)
			continue;
		have += n;
		char *start = text, *end;
		while ((end = memchr(start, '\n', text + have - start))) {
			*end = 0;
			line(start);
			start = end + 1;
		}
		have = text + have - start;
		if (have == sizeof(text)) /* no command is that long */
			have = 0;
		memmove(text, start, have);
	}
}

void verbs_control_close(void)
{
	if (control.running) {
		(void)!write(control.stop, &(uint64_t){1}, sizeof(uint64_t));
		pthread_join(control.thread, NULL);
		close(control.fifo);
		close(control.stop);
	}
	free(control.path);
	memset(&control, 0, sizeof(control));
}

/* Called without the table's lock: the thread that ends may wait for it. */
void verbs_control_configure(const char *path, void (*obey)(const char *word, const char *device))
{
	struct stat st;
	sigset_t all, old;
	if (!strcmp(control.path ? control.path : "", path))
		return;
	verbs_control_close();
	if (!*path)
		return;
	control.path = strdup(path);
	control.obey = obey;
	control.fifo = open(path, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
	if (control.fifo < 0 || fstat(control.fifo, &st) || !S_ISFIFO(st.st_mode)) {
		fprintf(stderr, "ibvtest: %s: opening the control FIFO: %s\n", path,
			control.fifo < 0 ? strerror(errno) : "not a FIFO");
		if (control.fifo >= 0)
			close(control.fifo);
		return;
	}
	control.stop = eventfd(0, EFD_CLOEXEC);
	/* The host's signal handlers, Go's above all, must not run on this thread. */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	control.running = control.stop >= 0 && !pthread_create(&control.thread, NULL, run, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!control.running) {
		fprintf(stderr, "ibvtest: %s: starting the control thread: %s\n", path, strerror(errno));
		close(control.fifo);
		if (control.stop >= 0)
			close(control.stop);
	}
}
