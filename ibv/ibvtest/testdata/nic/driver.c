/* SPDX-License-Identifier: Apache-2.0
 *
 * driver.c: the software NIC's engine behind a line protocol, for nic_*_test.go. Each line of
 * standard input is a command. The reply is one line: "ok ..." or "err ERRNO".
 *
 *	open IFNAME                                a nic on a netdev of this namespace
 *	rule PRIORITY FLAGS COUNTER VALUE MASK     struct nic_key in hex; counters are 0 to 4095
 *	del RULE                                   rules are numbered as they were added
 *	read COUNTER                               packets bytes
 *	clear COUNTER                              the same, and back to 0
 *	stats                                      errno ingress egress frames drops cut rules
 *	count DIRECTION FULL FRAME                 without a nic: one frame; cut, the counters that took it
 *	fresh                                      without a nic: no rules, counters 0
 *	parse FULL FRAME                           cut KEY
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nic_engine.h"

static struct nic *nic;
static struct nic_rules offline[2];
static struct nic_rule *rules[1 << 16];
static unsigned nrules;
static struct nic_counter counters[4096];

static unsigned unhex(const char *text, uint8_t *to, unsigned size)
{
	unsigned n = 0, byte;

	for (; n < size && sscanf(text + 2 * n, "%2x", &byte) == 1; n++)
		to[n] = byte;
	return n;
}

static void answer(int err)
{
	printf(err ? "err %d\n" : "ok\n", err);
}

static int attr_of(const char *args, struct nic_rule_attr *attr)
{
	static char value[2 * sizeof(struct nic_key) + 1], mask[2 * sizeof(struct nic_key) + 1];
	unsigned counter;

	memset(attr, 0, sizeof *attr);
	if (sscanf(args, "%" SCNu16 " %" SCNu32 " %u %368s %368s", &attr->priority, &attr->flags, &counter, value, mask) != 5 ||
	    unhex(value, (uint8_t *)&attr->match.value, sizeof attr->match.value) != sizeof attr->match.value ||
	    unhex(mask, (uint8_t *)&attr->match.mask, sizeof attr->match.mask) != sizeof attr->match.mask)
		return EINVAL;
	attr->counter = &counters[counter % 4096];
	return 0;
}

static int rule(const char *args)
{
	struct nic_rule_attr attr;
	int err = attr_of(args, &attr);

	if (err)
		return err;
	if (nic) {
		err = nic_rule_add(nic, &attr, &rules[nrules]);
	} else {
		err = nic_rule_new(&attr, &rules[nrules]);
		if (err)
			return err;
		err = nic_rules_insert(&offline[!!(attr.flags & NIC_EGRESS)], rules[nrules]);
		if (err)
			free(rules[nrules]);
	}
	nrules += !err;
	return err;
}

/* The frame in memory of its own size, so that a sanitizer detects reads behind it. */
static uint8_t *frame_of(const char *hex, unsigned *len)
{
	uint8_t *frame;

	*len = strlen(hex) / 2;
	frame = malloc(*len);
	*len = unhex(hex, frame, *len);
	return frame;
}

static void del(unsigned n)
{
	struct nic_rule *r = rules[n];

	if (nic) {
		nic_rule_del(nic, r);
	} else {
		nic_rules_remove(&offline[!!(r->attr.flags & NIC_EGRESS)], r);
		free(r);
	}
}

static int count(const char *args)
{
	static char hex[1 << 17];
	static struct nic_counter before[4096];
	struct nic_key key;
	unsigned direction, full, len;
	uint8_t *frame;

	if (sscanf(args, "%u %u %131071s", &direction, &full, hex) != 3)
		return EINVAL;
	memcpy(before, counters, sizeof before);
	frame = frame_of(hex, &len);
	printf("ok %d", nic_parse(frame, len, full, &key));
	free(frame);
	nic_rules_count(&offline[!!direction], &key, &(struct nic_packet){ .packets = 1, .bytes = full });
	for (unsigned i = 0; i < 4096; i++)
		if (counters[i].packets != before[i].packets)
			printf(" %u", i);
	printf("\n");
	return -1;
}

static int parse(const char *args)
{
	static char hex[1 << 17];
	struct nic_key key;
	unsigned full, len;
	uint8_t *frame;

	if (sscanf(args, "%u %131071s", &full, hex) != 2)
		return EINVAL;
	frame = frame_of(hex, &len);
	printf("ok %d ", nic_parse(frame, len, full, &key));
	free(frame);
	for (size_t i = 0; i < sizeof key; i++)
		printf("%02x", ((uint8_t *)&key)[i]);
	printf("\n");
	return -1;
}

static int read_counter(const char *args, int clear)
{
	struct nic_counter *from = &counters[atoi(args) % 4096], c;
	int err = 0;

	if (nic) {
		err = nic_counters_copy(nic, from, &c, 1, clear);
	} else {
		c = *from;
		if (clear)
			memset(from, 0, sizeof *from);
	}
	if (err)
		return err;
	printf("ok %" PRIu64 " %" PRIu64 "\n", c.packets, c.bytes);
	return -1;
}

/* Without a nic: forget every rule and counter. */
static void fresh(void)
{
	nrules = 0;
	nic_rules_free(&offline[0]);
	nic_rules_free(&offline[1]);
	memset(counters, 0, sizeof counters);
}

static int stats(void)
{
	struct nic_stats s;
	int err = nic_stats_read(nic, &s);

	printf("ok %d %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", err, s.ingress, s.egress, s.frames,
	       s.drops, s.cut, s.rules);
	return -1;
}

int main(void)
{
	static char line[1 << 18];

	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fgets(line, sizeof line, stdin)) {
		char *args = strchr(line, ' ');
		int err = 0;

		line[strcspn(line, "\n")] = 0;
		if (args)
			*args++ = 0;
		else
			args = "";
		if (!strcmp(line, "open"))
			err = nic_open(args, &nic);
		else if (!strcmp(line, "rule"))
			err = rule(args);
		else if (!strcmp(line, "del"))
			del(atoi(args));
		else if (!strcmp(line, "fresh"))
			fresh();
		else if (!strcmp(line, "read"))
			err = read_counter(args, 0);
		else if (!strcmp(line, "clear"))
			err = read_counter(args, 1);
		else if (!strcmp(line, "stats"))
			err = stats();
		else if (!strcmp(line, "count"))
			err = count(args);
		else if (!strcmp(line, "parse"))
			err = parse(args);
		else
			err = ENOSYS;
		if (err >= 0)
			answer(err);
	}
	if (nic)
		nic_close(nic);
	return 0;
}
