/* SPDX-License-Identifier: Apache-2.0
 *
 * comp_cntr.h: completion counters (ibv_create_comp_cntr(3) of rdma-core 65) and external
 * memory (efadv_create_comp_cntr(3)), which the distribution's headers may not have yet:
 * so by symbol. */
#ifndef COMP_CNTR_H
#define COMP_CNTR_H

#include "check.h"

#include <dlfcn.h>

struct comp_cntr {
	struct ibv_context *context;
	uint32_t handle;
};

struct comp_cntr_caps {
	uint64_t max_value;
	uint32_t max_counters, supported_qp_attach_ops;
};

enum { SEND = 1, RECV = 2, READ = 4, REMOTE_READ = 8, WRITE = 16, REMOTE_WRITE = 32 };

#define VERB(result, name, ...)                                                                                        \
	result (*name)(__VA_ARGS__) = (result(*)(__VA_ARGS__))dlvsym(shim(), #name, "IBVERBS_1.18");             \
	NEED(name)

struct external {
	uint64_t comp_mask;
	uint32_t flags, reserved;
	struct location {
		uint8_t *ptr;
		uint64_t offset;
		int32_t fd;
		uint32_t reserved;
		uint8_t type;
		uint8_t more_reserved[7];
	} comp, err;
};

typedef struct comp_cntr *efadv_create_comp_cntr_fn(struct ibv_context *, uint32_t *attr, struct external *, uint32_t inlen);

/* The shim in front of the host's libraries. */
void *shim(void);

#endif
