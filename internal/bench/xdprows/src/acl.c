/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DPDK's rte_acl over a rule set and a trace, one packet at a time: a peer of the bench, compiled by it where
 * libdpdk-dev is installed, in a process of its own. Usage: acl RULES PACKETS CPU. A line of RULES is
 * src srclen dst dstlen sfirst slast dfirst dlast proto, a line of PACKETS src dst sport dport proto first: the
 * place of the rule that decides the packet, plus 1. Compared once before anything is measured.
 *
 * stdin: "pin CPU" pins the thread, "acl N" classifies N packets. Each is replied with nanoseconds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_acl.h>
#include <rte_eal.h>
#include <rte_errno.h>

enum { PACKETS = 65536, MAX_SIZE = 1 << 30 };

struct packet {
	uint8_t proto;
	uint8_t pad[3];
	uint32_t src, dst;
	uint16_t sport, dport;
};

static const struct rte_acl_field_def fields[] = {
	{ .type = RTE_ACL_FIELD_TYPE_BITMASK, .size = 1, .field_index = 0, .input_index = 0, .offset = offsetof(struct packet, proto) },
	{ .type = RTE_ACL_FIELD_TYPE_MASK, .size = 4, .field_index = 1, .input_index = 1, .offset = offsetof(struct packet, src) },
	{ .type = RTE_ACL_FIELD_TYPE_MASK, .size = 4, .field_index = 2, .input_index = 2, .offset = offsetof(struct packet, dst) },
	{ .type = RTE_ACL_FIELD_TYPE_RANGE, .size = 2, .field_index = 3, .input_index = 3, .offset = offsetof(struct packet, sport) },
	{ .type = RTE_ACL_FIELD_TYPE_RANGE, .size = 2, .field_index = 4, .input_index = 3, .offset = offsetof(struct packet, dport) },
};
enum { FIELDS = sizeof(fields) / sizeof(fields[0]) };

RTE_ACL_RULE_DEF(rule, FIELDS);

static struct packet packets[PACKETS];
static uint32_t expected[PACKETS];

static _Noreturn void fail(const char *what, int err)
{
	printf("error: %s: %s\n", what, strerror(err < 0 ? -err : err));
	exit(1);
}

static struct rte_acl_ctx *build(const char *path)
{
	struct rte_acl_param param = { .name = "bench", .socket_id = SOCKET_ID_ANY, .rule_size = RTE_ACL_RULE_SZ(FIELDS), .max_rule_num = 1 << 17 };
	struct rte_acl_config config = { .num_categories = 1, .num_fields = FIELDS, .max_size = MAX_SIZE };
	struct rte_acl_ctx *ctx = rte_acl_create(&param);
	FILE *f = fopen(path, "r");
	struct rule r;
	uint32_t src, srclen, dst, dstlen, proto;
	uint16_t sf, sl, df, dl;
	int err;

	if (!ctx || !f)
		fail("creating the context", ctx ? errno : rte_errno);
	for (uint32_t i = 0; fscanf(f, "%u %u %u %u %hu %hu %hu %hu %u", &src, &srclen, &dst, &dstlen, &sf, &sl, &df, &dl, &proto) == 9; i++) {
		memset(&r, 0, sizeof r);
		r.data.category_mask = 1;
		r.data.priority = RTE_ACL_MAX_PRIORITY - i;
		r.data.userdata = i + 1;
		r.field[0].value.u8 = proto;
		r.field[0].mask_range.u8 = proto ? 0xff : 0;
		r.field[1].value.u32 = src;
		r.field[1].mask_range.u32 = srclen;
		r.field[2].value.u32 = dst;
		r.field[2].mask_range.u32 = dstlen;
		r.field[3].value.u16 = sf;
		r.field[3].mask_range.u16 = sl;
		r.field[4].value.u16 = df;
		r.field[4].mask_range.u16 = dl;
		if ((err = rte_acl_add_rules(ctx, (struct rte_acl_rule *)&r, 1)))
			fail("adding a rule", err);
	}
	fclose(f);
	memcpy(config.defs, fields, sizeof fields);
	if ((err = rte_acl_build(ctx, &config)))
		fail("building with max_size 1 GiB", err);
	return ctx;
}

static void load(const char *path)
{
	FILE *f = fopen(path, "r");
	uint32_t src, dst, proto, first;
	uint16_t sport, dport;

	if (!f)
		fail("opening the trace", errno);
	for (int i = 0; i < PACKETS; i++) {
		if (fscanf(f, "%u %u %hu %hu %u %u", &src, &dst, &sport, &dport, &proto, &first) != 6)
			fail("reading the trace", EINVAL);
		packets[i] = (struct packet){ .proto = proto, .src = htonl(src), .dst = htonl(dst), .sport = htons(sport), .dport = htons(dport) };
		expected[i] = first;
	}
	fclose(f);
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof set, &set))
		fail("pinning the thread", errno);
}

static uint32_t classify(const struct rte_acl_ctx *ctx, uint32_t i)
{
	const uint8_t *data = (const uint8_t *)&packets[i];
	uint32_t result;

	rte_acl_classify(ctx, &data, &result, 1, 1);
	return result;
}

int main(int argc, char **argv)
{
	char lcores[32], word[16];

	char *eal[] = { "acl", "--no-huge", "--no-pci", "--no-telemetry", "--no-shconf", "-m", "1536", "--lcores", lcores, "--log-level", "error", NULL };
	static uint32_t sum;
	uint32_t at = 0;
	long n;

	if (argc != 4)
		fail("usage: acl RULES PACKETS CPU", EINVAL);
	snprintf(lcores, sizeof lcores, "0@%s", argv[3]);
	if (rte_eal_init(sizeof eal / sizeof *eal - 1, eal) < 0)
		fail("starting the EAL", rte_errno);
	struct rte_acl_ctx *ctx = build(argv[1]);

	load(argv[2]);
	for (uint32_t i = 0; i < PACKETS; i++)
		if (classify(ctx, i) != expected[i])
			fail("comparing a packet with the linear matcher", EINVAL);
	printf("0\n");
	fflush(stdout);
	while (scanf("%15s %ld", word, &n) == 2) {
		struct timespec t0, t1;

		if (!strcmp(word, "pin")) {
			pin(n);
			printf("0\n");
			fflush(stdout);
			continue;
		}
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t0);
		for (long i = 0; i < n; i++)
			sum += classify(ctx, at++ % PACKETS);
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t1);
		printf("%f\n", ((t1.tv_sec - t0.tv_sec) * 1e9 + (t1.tv_nsec - t0.tv_nsec)) / n);
		fflush(stdout);
	}
	return 0;
}
