/* SPDX-License-Identifier: Apache-2.0
 *
 * nic.c: a nic is a ring, the rules of both directions and a thread that reads the ring. Calls
 * read the ring themselves, under the lock, so that no reader waits for the thread. The thread
 * keeps the ring from filling between calls.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "nic_engine.h"

struct nic {
	pthread_mutex_t lock; /* protects all members below but stop, name and thread */
	struct nic_ring ring;
	struct nic_rules rules[2]; /* by direction, 1 is egress */
	struct nic_stats stats;
	int gone;
	int loses_sent; /* NIC_LOSES_SENT */
	unsigned sent;  /* frames that left, while it loses some */
	int stop; /* an eventfd; readable: the thread ends */
	char name[32];
	pthread_t thread;
};

/* The thread sleeps this long after each look, so that it takes frames by the hundred; the
 * ring holds a sixth of a second of 200 kpps. */
static const struct timespec pause_between = { .tv_nsec = 500 * 1000 };

/* The most frames that the thread takes under the lock before it lets callers in. */
enum { BATCH = 4096 };

/* The frame's first bytes with the tag that the kernel took off put back. */
static unsigned restore_tag(const struct nic_frame *f, uint8_t *to)
{
	unsigned held = f->held < NIC_PARSE_MAX ? f->held : NIC_PARSE_MAX;

	memcpy(to, f->data, 12);
	to[12] = f->tag >> 24;
	to[13] = f->tag >> 16;
	to[14] = f->tag >> 8;
	to[15] = f->tag;
	memcpy(to + 16, f->data + 12, held - 12);
	return held + 4;
}

static void look_at(struct nic *nic, const struct nic_frame *f)
{
	uint8_t tagged[NIC_PARSE_MAX + 4];
	struct nic_packet packet = { .frame = f->data, .len = f->held };
	struct nic_key key;
	unsigned full = f->full;
	int cut;

	if (nic->loses_sent && f->egress && nic->sent++ % 8 == 0)
		return;
	if (f->tag && f->held >= 12) {
		packet.frame = tagged;
		packet.len = restore_tag(f, tagged);
		full += 4;
	}
	cut = nic_parse(packet.frame, packet.len, full, &key);
	cut |= nic_wire(f, &packet.packets, &packet.bytes);
	nic->stats.frames++;
	nic->stats.cut += cut;
	*(f->egress ? &nic->stats.egress : &nic->stats.ingress) += packet.packets;
	if (packet.packets != 1 || packet.len < full)
		packet.frame = NULL;
	nic_rules_count(&nic->rules[f->egress], &key, &packet);
}

/* drain reads the ring, up to max frames; with the lock held. */
static void drain(struct nic *nic, unsigned max)
{
	struct nic_frame frame;

	while (max-- && nic_ring_peek(&nic->ring, &frame)) {
		look_at(nic, &frame);
		nic_ring_release(&nic->ring);
	}
}

/* account takes over the socket's own counts; with the lock held. */
static int account(struct nic *nic)
{
	int err = nic_ring_account(&nic->ring);

	if (err)
		return err;
	if (nic->ring.dropped && !nic->stats.drops)
		fprintf(stderr, "ibvtest: %s: the ring was full and frames were dropped: counters are short from here on\n", nic->name);
	nic->stats.drops = nic->ring.dropped;
	return 0;
}

/* sync_locked looks at every frame that the socket had received when it was called. A
 * frame that another CPU is just copying into its slot is waited for. */
static int sync_locked(struct nic *nic)
{
	uint64_t received;
	int err = account(nic);

	if (err)
		return err;
	received = nic->ring.received;
	for (;;) {
		if (nic->ring.taken < received)
			drain(nic, received - nic->ring.taken);
		if (nic->ring.taken >= received)
			break;
		sched_yield();
	}
	if (!nic->gone)
		nic->gone = nic_ring_gone(&nic->ring);
	return nic->gone ? ENODEV : 0;
}

static void *run(void *arg)
{
	struct nic *nic = arg;
	struct pollfd fds[2] = { { .fd = nic->ring.fd, .events = POLLIN }, { .fd = nic->stop, .events = POLLIN } };

	for (;;) {
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			return NULL;
		if (fds[1].revents)
			return NULL;
		pthread_mutex_lock(&nic->lock);
		drain(nic, BATCH);
		account(nic);
		if (fds[0].revents & POLLERR) {
			int err;
			socklen_t size = sizeof err;

			/* Reading the error clears it: ENETDOWN, for down and for gone alike. */
			getsockopt(nic->ring.fd, SOL_SOCKET, SO_ERROR, &err, &size);
			nic->gone = nic_ring_gone(&nic->ring);
			if (nic->gone)
				fds[0].fd = -1; /* poll no more */
		}
		pthread_mutex_unlock(&nic->lock);
		nanosleep(&pause_between, NULL);
	}
}

/* The process's signals are not for this thread. */
static int start(struct nic *nic)
{
	sigset_t all, before;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&nic->thread, NULL, run, nic);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return err;
}

int nic_open(const char *ifname, struct nic **out)
{
	struct nic *nic = calloc(1, sizeof *nic);
	int err;

	if (!nic)
		return ENOMEM;
	snprintf(nic->name, sizeof nic->name, "%s", ifname);
	pthread_mutex_init(&nic->lock, NULL);
	nic->stop = eventfd(0, EFD_CLOEXEC);
	err = nic->stop < 0 ? errno : nic_ring_open(&nic->ring, ifname);
	if (err)
		goto fail;
	err = start(nic);
	if (err) {
		nic_ring_close(&nic->ring);
		goto fail;
	}
	*out = nic;
	return 0;
fail:
	if (nic->stop >= 0)
		close(nic->stop);
	pthread_mutex_destroy(&nic->lock);
	free(nic);
	return err;
}

int nic_misbehave(struct nic *nic, enum nic_fault fault)
{
	int err = 0;

	pthread_mutex_lock(&nic->lock);
	if (fault == NIC_LOSES_SENT)
		nic->loses_sent = 1;
	else
		err = nic_ring_every_port(&nic->ring);
	pthread_mutex_unlock(&nic->lock);
	return err;
}

void nic_close(struct nic *nic)
{
	uint64_t one = 1;

	if (write(nic->stop, &one, sizeof one) != sizeof one)
		abort(); /* an eventfd at 0 takes a 1 */
	pthread_join(nic->thread, NULL);
	nic_ring_close(&nic->ring);
	close(nic->stop);
	nic_rules_free(&nic->rules[0]);
	nic_rules_free(&nic->rules[1]);
	pthread_mutex_destroy(&nic->lock);
	free(nic);
}

static struct nic_rules *rules_of(struct nic *nic, const struct nic_rule_attr *attr)
{
	return &nic->rules[!!(attr->flags & NIC_EGRESS)];
}

int nic_rule_add(struct nic *nic, const struct nic_rule_attr *attr, struct nic_rule **out)
{
	struct nic_rule *rule;
	int err = nic_rule_new(attr, &rule);

	if (err)
		return err;
	pthread_mutex_lock(&nic->lock);
	err = sync_locked(nic);
	if (!err)
		err = nic_rules_insert(rules_of(nic, attr), rule);
	nic->stats.rules += !err;
	pthread_mutex_unlock(&nic->lock);
	if (err)
		free(rule);
	else
		*out = rule;
	return err;
}

void nic_rule_del(struct nic *nic, struct nic_rule *rule)
{
	if (!rule)
		return;
	pthread_mutex_lock(&nic->lock);
	sync_locked(nic); /* even if the netdev is gone: earlier packets are counted */
	nic_rules_remove(rules_of(nic, &rule->attr), rule);
	nic->stats.rules--;
	pthread_mutex_unlock(&nic->lock);
	free(rule);
}

int nic_sync(struct nic *nic)
{
	return nic_counters_copy(nic, NULL, NULL, 0, 0);
}

int nic_counters_copy(struct nic *nic, struct nic_counter *from, struct nic_counter *to, unsigned n, int clear)
{
	int err;

	pthread_mutex_lock(&nic->lock);
	err = sync_locked(nic);
	for (unsigned i = 0; i < n; i++) {
		to[i] = from[i];
		if (clear)
			from[i] = (struct nic_counter){ 0 };
	}
	pthread_mutex_unlock(&nic->lock);
	return err;
}

int nic_counter_read(struct nic *nic, const struct nic_counter *counter, uint64_t *packets, uint64_t *bytes)
{
	struct nic_counter c;
	int err = nic_counters_copy(nic, (struct nic_counter *)counter, &c, 1, 0);

	*packets = c.packets;
	*bytes = c.bytes;
	return err;
}

unsigned nic_queue_take(struct nic *nic, struct nic_queue *queue, uint8_t *to)
{
	unsigned len;

	pthread_mutex_lock(&nic->lock);
	len = nic_queue_remove(queue, to);
	pthread_mutex_unlock(&nic->lock);
	return len;
}

/* loop receives a frame that the nic sent, if it is to the netdev's own address or to a group. */
static void loop(struct nic *nic, const uint8_t *frame, unsigned len)
{
	struct nic_frame f = { .data = frame, .held = len < NIC_PARSE_MAX ? len : NIC_PARSE_MAX, .full = len };
	uint8_t own[6];

	if (frame[0] & 1 || (!nic_ring_address(&nic->ring, own) && !memcmp(frame, own, sizeof own)))
		look_at(nic, &f);
}

int nic_send(struct nic *nic, const uint8_t *frame, unsigned len)
{
	int err = 0;

	pthread_mutex_lock(&nic->lock);
	if (send(nic->ring.sender, frame, len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		err = errno;
	else
		loop(nic, frame, len);
	pthread_mutex_unlock(&nic->lock);
	return err;
}

int nic_stats_read(struct nic *nic, struct nic_stats *stats)
{
	int err;

	pthread_mutex_lock(&nic->lock);
	err = sync_locked(nic);
	*stats = nic->stats;
	pthread_mutex_unlock(&nic->lock);
	return err;
}

uint64_t nic_drops(struct nic *nic)
{
	uint64_t drops;

	pthread_mutex_lock(&nic->lock);
	drops = nic->stats.drops;
	pthread_mutex_unlock(&nic->lock);
	return drops;
}
