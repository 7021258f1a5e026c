/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_soft.h: what the environment tells the kernel: its devices, faults, statistics, the limits of counters, and the
 * FIFO that changes a device at run time. The locks of these files are leaves, below the kernel's (uv_lock). */
#ifndef FLOWTALLY_IBVTEST_VERBS_SOFT_H
#define FLOWTALLY_IBVTEST_VERBS_SOFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "verbs_abi.h"

/* verbs_environ.c: FLOWTALLY_IBVTEST_*, read by verbs_environ_load. The strings live until verbs_environ_free. */
struct verbs_environ {
	char *devices, *fail, *delay, *without, *control, *statistics, *comp_cntr_max, *comp_cntr_ops;
};
extern const char *const verbs_capabilities[]; /* the names that WITHOUT may contain, NULL at the end */
void verbs_environ_load(struct verbs_environ *environ);
void verbs_environ_free(struct verbs_environ *environ);
int verbs_errno(const char *name, size_t n); /* "EIO" or "5"; -1 when unknown */
#define VERBS_ABORT 4095			     /* "ABORT": the call ends the process */
#define VERBS_EXIT 4094			     /* "EXIT": the call ends the process with status 0 */
/* An item of a comma-separated list, "[device/]name[=value]": copied, and *list advanced. */
struct verbs_item {
	char device[64], name[64], value[64];
};
bool verbs_next_item(const char **list, struct verbs_item *item);

/* verbs_calls.c: statistics, faults and delays. */
void verbs_calls_configure(const char *statistics, const char *fail, const char *delay, const char *without);
void verbs_end(int how); /* VERBS_ABORT or VERBS_EXIT */
int verbs_call(const char *device, const char *verb); /* counts and delays; 0 or the errno to return */
uint64_t verbs_delay(const char *device, const char *name); /* ns from DELAY for a name that is not a call */
void verbs_count(const char *name, uint64_t n); /* adds to a statistic that is not a call */
bool verbs_without(const char *device, const char *capability);

/* verbs_limits.c: of completion counters. */
void verbs_comp_cntr_configure(const char *max, const char *ops);
void verbs_comp_cntr_limits(const char *device, uint64_t *max, uint32_t *ops);

/* verbs_control.c: the thread that reads the FIFO, and calls obey for each line. */
void verbs_control_configure(const char *path, void (*obey)(const char *word, const char *device));
void verbs_control_close(void);

#endif
