/* SPDX-License-Identifier: Apache-2.0
 *
 * check.h: the macros of the self-test. The cases are compiled against the distribution's
 * <infiniband/verbs.h>, whose inline verbs go through struct verbs_context, and linked against
 * its libibverbs, so that the ABI is checked against an independent source. Every case is a
 * process of its own: selftest CASE. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern int failures;

/* WANT compares a number with its required value, and goes on. */
#define WANT(got, want)                                                                                                \
	do {                                                                                                           \
		long long g_ = (long long)(got), w_ = (long long)(want);                                               \
		if (g_ != w_ && ++failures)                                                                            \
			printf("%s:%d: %s is %lld, want %lld (errno %d)\n", __FILE__, __LINE__, #got, g_, w_, errno);  \
	} while (0)

/* The same within twenty seconds: a card does posted work on its own. */
#define WANT_SOON(got, want)                                                                                           \
	do {                                                                                                           \
		long long now_ = (long long)(got);                                                                     \
		for (int i_ = 0; i_ < 20000 && now_ != (long long)(want); i_++) {                                      \
			usleep(1000);                                                                                  \
			now_ = (long long)(got);                                                                       \
		}                                                                                                      \
		WANT(now_, want);                                                                                      \
	} while (0)

/* A verb that returns a pointer must fail with this errno. */
#define WANT_NULL(call, want)                                                                                          \
	do {                                                                                                           \
		errno = 0;                                                                                             \
		void *p_ = (call);                                                                                     \
		if (p_ && ++failures)                                                                                  \
			printf("%s:%d: %s answers a pointer, want errno %d\n", __FILE__, __LINE__, #call, (want));     \
		else                                                                                                   \
			WANT(errno, want);                                                                             \
	} while (0)

/* NEED is a condition without which the rest of the case makes no sense. */
#define NEED(cond)                                                                                                     \
	do {                                                                                                           \
		if (!(cond)) {                                                                                         \
			printf("%s:%d: %s: errno %d (%s)\n", __FILE__, __LINE__, #cond, errno, strerror(errno));       \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

/* Everything up to a RAW_PACKET QP, on device mlx5_0. */
struct rig {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

struct ibv_context *open_device(const char *name);
struct ibv_qp_init_attr qp_attr(struct ibv_cq *cq, enum ibv_qp_type type);
void rig_up(struct rig *r);
void rig_down(struct rig *r);

/* A flow as one packed blob, which specs are added to. */
struct blob {
	struct ibv_flow_attr attr;
	char specs[512];
} __attribute__((packed, aligned(8)));

void blob_init(struct blob *b, uint16_t priority, uint32_t flags);
void blob_add(struct blob *b, const void *spec, uint16_t size);
void blob_udp(struct blob *b, uint16_t dport); /* IPv4, UDP to that port */
void blob_count(struct blob *b, struct ibv_counters *counters);
struct ibv_flow *blob_flow(struct blob *b, struct ibv_qp *qp);
struct ibv_counters *packets_and_bytes(struct ibv_context *context);

/* Sends n UDP packets of the given payload from the peer netdev v1. */
void send_udp(unsigned n, uint16_t dport, size_t payload);
uint64_t frame_bytes(size_t payload);

void tell(const char *line);           /* a line on the control FIFO */
int next_event(struct ibv_context *c); /* the type, -1 when none comes within twenty seconds */

#endif
