/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_calls.c: the start of every verb: the call is counted, is delayed as long as firmware
 * would take, and fails if a test asks for it.
 *
 * The counts are a mapped file of 64-byte records (a name of 56 bytes, zero-filled, and
 * a count in the machine's byte order), so that a test reads them at any time and from
 * another process. Records are only added; a file that several processes share is the
 * sum of their calls. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "verbs_soft.h"

#define RECORDS 512
#define RULES 64

struct record {
	char name[56];
	uint64_t calls;
};

/* One item of FAIL or DELAY. Calls are numbered from 1, from when the list was read. */
struct rule {
	char device[64], verb[64];
	uint64_t from, to, seen;
	int err;
	uint64_t delay_ns;
};

/* The library's only state of calls. lock is a leaf. */
static struct {
	pthread_mutex_t lock;
	char *path;
	int fd;
	struct record *records;
	char *fail, *delay, *without;
	struct rule rules[RULES];
	unsigned n;
} calls = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

static void complain(const char *what, const struct verbs_item *item)
{
	fprintf(stderr, "ibvtest: %s: %s=%s is not understood and has no effect\n", what, item->name, item->value);
}

/* EIO, EIO@3 (from the third call on), EIO@3-5. */
static bool parse_fault(const struct verbs_item *item, struct rule *r)
{
	const char *at = strchr(item->value, '@');
	char *end;
	r->from = 1;
	r->to = UINT64_MAX;
	r->err = verbs_errno(item->value, at ? (size_t)(at - item->value) : strlen(item->value));
	if (r->err < 0)
		return false;
	if (!at)
		return true;
	r->from = strtoull(at + 1, &end, 10);
	if (end == at + 1)
		return false;
	if (*end == '-') {
		at = end;
		r->to = strtoull(at + 1, &end, 10);
		if (end == at + 1)
			return false;
	}
	return !*end && r->from && r->from <= r->to;
}

static bool parse_delay(const struct verbs_item *item, struct rule *r)
{
	char *end;
	r->from = 1;
	r->to = UINT64_MAX;
	r->delay_ns = strtoull(item->value, &end, 10);
	return end != item->value && !strcmp(end, "ns");
}

static void parse(const char *list, const char *what, bool (*one)(const struct verbs_item *, struct rule *))
{
	struct verbs_item item;
	while (verbs_next_item(&list, &item)) {
		struct rule r = {0};
		if (calls.n == RULES || !one(&item, &r)) {
			complain(what, &item);
			continue;
		}
		memcpy(r.device, item.device, sizeof(r.device));
		memcpy(r.verb, item.name, sizeof(r.verb));
		calls.rules[calls.n++] = r;
	}
}

static void close_records(void)
{
	if (calls.records)
		munmap(calls.records, RECORDS * sizeof(struct record));
	if (calls.fd >= 0)
		close(calls.fd);
	free(calls.path);
	calls.records = NULL;
	calls.path = NULL;
	calls.fd = -1;
}

/* open_records creates no file if it cannot: statistics are then lost, and stderr reports it. */
static void open_records(const char *path)
{
	struct stat st;
	size_t size = RECORDS * sizeof(struct record);
	calls.path = strdup(path);
	calls.fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (calls.fd < 0 || fstat(calls.fd, &st) || !S_ISREG(st.st_mode) ||
	    (st.st_size < (off_t)size && ftruncate(calls.fd, size))) {
		fprintf(stderr, "ibvtest: %s: opening the call statistics: %s\n", path, strerror(errno));
		return;
	}
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, calls.fd, 0);
	if (p != MAP_FAILED)
		calls.records = p;
}

static bool replace(char **old, const char *new)
{
	if (*old && !strcmp(*old, new))
		return false;
	free(*old);
	*old = strdup(new);
	return true;
}

/* A list that is as it was goes on with its numbering. */
void verbs_calls_configure(const char *statistics, const char *fail, const char *delay, const char *without)
{
	pthread_mutex_lock(&calls.lock);
	if (*statistics && (!calls.path || strcmp(calls.path, statistics))) {
		close_records();
		open_records(statistics);
	}
	bool changed = replace(&calls.fail, fail);
	changed |= replace(&calls.delay, delay);
	if (changed) {
		calls.n = 0;
		parse(fail, "FLOWTALLY_IBVTEST_FAIL", parse_fault);
		parse(delay, "FLOWTALLY_IBVTEST_DELAY", parse_delay);
	}
	if (replace(&calls.without, without)) {
		struct verbs_item item;
		while (verbs_next_item(&without, &item)) {
			const char *const *c = verbs_capabilities;
			while (*c && strcmp(*c, item.name))
				c++;
			if (!*c)
				complain("FLOWTALLY_IBVTEST_WITHOUT", &item);
		}
	}
	pthread_mutex_unlock(&calls.lock);
}

const char *const verbs_capabilities[] = {"counters", "flows", "dont_trap", "egress", "raw", "devx", "comp_cntr", "efadv", "cq_ring", NULL};

bool verbs_without(const char *device, const char *capability)
{
	struct verbs_item item;
	bool found = false;
	pthread_mutex_lock(&calls.lock);
	const char *list = calls.without ? calls.without : "";
	while (!found && verbs_next_item(&list, &item))
		found = !strcmp(item.name, capability) && (!*item.device || !strcmp(item.device, device));
	pthread_mutex_unlock(&calls.lock);
	return found;
}

/* The record of a verb; another process may add records to the same file meanwhile. */
static struct record *record(const char *verb)
{
	for (unsigned i = 0; calls.records && i < RECORDS; i++) {
		struct record *r = &calls.records[i];
		if (!r->name[0]) {
			flock(calls.fd, LOCK_EX);
			if (!r->name[0])
				strncpy(r->name, verb, sizeof(r->name) - 1);
			flock(calls.fd, LOCK_UN);
		}
		if (!strncmp(r->name, verb, sizeof(r->name) - 1))
			return r;
	}
	return NULL;
}

void verbs_count(const char *name, uint64_t n)
{
	pthread_mutex_lock(&calls.lock);
	struct record *r = record(name);
	if (r)
		__atomic_fetch_add(&r->calls, n, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&calls.lock);
}

/* The thread's timer slack, 50 us by default, would be half of a firmware command. */
static void wait_for(uint64_t ns)
{
	struct timespec left = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
	int slack = prctl(PR_GET_TIMERSLACK);
	prctl(PR_SET_TIMERSLACK, 1);
	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
		;
	if (slack > 0)
		prctl(PR_SET_TIMERSLACK, slack);
}

static bool names(const struct rule *r, const char *device, const char *verb)
{
	return !strcmp(r->verb, verb) && (!*r->device || (device && !strcmp(r->device, device)));
}

uint64_t verbs_delay(const char *device, const char *name)
{
	uint64_t ns = 0;
	pthread_mutex_lock(&calls.lock);
	for (unsigned i = 0; i < calls.n; i++)
		if (names(&calls.rules[i], device, name))
			ns += calls.rules[i].delay_ns;
	pthread_mutex_unlock(&calls.lock);
	return ns;
}

/* Ends the process of the call, which is this one. A front end that serves other processes has its own. */
__attribute__((weak)) void verbs_end(int how)
{
	if (how == VERBS_ABORT)
		abort();
	_exit(0);
}

int verbs_call(const char *device, const char *verb)
{
	uint64_t delay_ns = 0;
	int err = 0;
	pthread_mutex_lock(&calls.lock);
	struct record *r = record(verb);
	if (r)
		__atomic_fetch_add(&r->calls, 1, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < calls.n; i++) {
		struct rule *x = &calls.rules[i];
		if (!names(x, device, verb))
			continue;
		if (++x->seen < x->from || x->seen > x->to)
			continue;
		delay_ns += x->delay_ns;
		if (!err)
			err = x->err;
	}
	pthread_mutex_unlock(&calls.lock);
	if (delay_ns)
		wait_for(delay_ns);
	if (err == VERBS_ABORT)
		fprintf(stderr, "ibvtest: %s: %s aborts, as FAIL says\n", device, verb);
	if (err == VERBS_ABORT || err == VERBS_EXIT) {
		verbs_end(err);
		err = EINTR;
	}
	return err;
}
