/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_limits.c: the limits of the devices' completion counters, from
 * FLOWTALLY_IBVTEST_COMP_CNTR_MAX (a number) and FLOWTALLY_IBVTEST_COMP_CNTR_OPS (names of
 * operations, or their bits as a number; for one device: "swnic0/send"). A device that neither
 * names has 48 bits and every operation. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verbs_soft.h"

#define MAX_VALUE ((UINT64_C(1) << 48) - 1)
#define RULES 32

/* lock is a leaf. */
static struct {
	pthread_mutex_t lock;
	struct limit {
		char device[64];
		uint64_t max; /* 0: no limit given */
		uint32_t op;
	} rules[RULES];
	unsigned n;
} limits = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const struct {
	const char *name;
	uint32_t op;
} operations[] = {
	{"send", IBV_QP_ATTACH_COMP_CNTR_OP_SEND},
	{"recv", IBV_QP_ATTACH_COMP_CNTR_OP_RECV},
	{"rdma_read", IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ},
	{"remote_rdma_read", IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ},
	{"rdma_write", IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE},
	{"remote_rdma_write", IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE},
};

static uint32_t operation(const char *name)
{
	char *end;
	for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++)
		if (!strcmp(operations[i].name, name))
			return operations[i].op;
	unsigned long bits = strtoul(name, &end, 0);
	return *end || bits > UINT32_MAX ? 0 : bits;
}

static void parse(const char *list, const char *variable, bool is_max)
{
	struct verbs_item item;
	while (verbs_next_item(&list, &item)) {
		struct limit r = {0};
		char *end = item.name;
		memcpy(r.device, item.device, sizeof(r.device));
		if (is_max)
			r.max = strtoull(item.name, &end, 0);
		else
			r.op = operation(item.name);
		if (limits.n == RULES || *item.value || (is_max ? !r.max || *end : !r.op))
			fprintf(stderr, "ibvtest: %s: %s is not understood and has no effect\n", variable, item.name);
		else
			limits.rules[limits.n++] = r;
	}
}

void verbs_comp_cntr_configure(const char *max, const char *ops)
{
	pthread_mutex_lock(&limits.lock);
	limits.n = 0;
	parse(max, "FLOWTALLY_IBVTEST_COMP_CNTR_MAX", true);
	parse(ops, "FLOWTALLY_IBVTEST_COMP_CNTR_OPS", false);
	pthread_mutex_unlock(&limits.lock);
}

void verbs_comp_cntr_limits(const char *device, uint64_t *max, uint32_t *ops)
{
	*max = 0;
	*ops = 0;
	pthread_mutex_lock(&limits.lock);
	for (unsigned i = 0; i < limits.n; i++) {
		const struct limit *r = &limits.rules[i];
		if (*r->device && strcmp(r->device, device))
			continue;
		if (r->max)
			*max = r->max;
		*ops |= r->op;
	}
	pthread_mutex_unlock(&limits.lock);
	if (!*max)
		*max = MAX_VALUE;
	if (!*ops)
		for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++)
			*ops |= operations[i].op;
}
