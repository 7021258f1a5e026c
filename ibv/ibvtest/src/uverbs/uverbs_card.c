/* SPDX-License-Identifier: Apache-2.0
 *
 * uverbs_card.c: the thread that does the card's side of the work: it lets each driver walk the doorbells of its live queues.
 * It sleeps longer while no queue has work, up to a millisecond, and for good while no device was woken. */
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "uverbs_core.h"

static void *walk(void *arg)
{
	long sleep_ns = 0;
	(void)arg;
	for (;;) {
		unsigned done = 0;
		uv_lock();
		for (struct uv_device *d = uv_devices(); d; d = d->next)
			if (d->ops->card && d->files)
				done += d->ops->card(d);
		uv_unlock();
		sleep_ns = done ? 0 : sleep_ns < 1000000 ? sleep_ns + 5000 : sleep_ns;
		nanosleep(&(struct timespec){.tv_nsec = sleep_ns + 1000}, NULL);
	}
	return NULL;
}

void uv_card_wake(struct uv_device *device)
{
	static bool running;
	pthread_t thread;
	sigset_t all, old;
	(void)device;
	if (running)
		return;
	/* The host's signal handlers, Go's above all, must not run on this thread. */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	running = !pthread_create(&thread, NULL, walk, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (running)
		pthread_detach(thread);
}
