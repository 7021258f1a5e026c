/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally_status.h: the state of a mirror's writer, and how full the mirror is.
 *
 * The words are loaded one by one, so they belong only roughly to one moment. Two are
 * loaded with acquire: later loads see all values of cycle cycle_done, and the catalogue
 * after catalogue_changes changes. A writer is alive if its state is BOOT or RUN, its
 * heartbeat at most two periods old, and the file not given up. A reader never waits for
 * a writer, dead or alive.
 *
 * From any thread, with no system call.
 */
#ifndef FLOWTALLY_STATUS_H
#define FLOWTALLY_STATUS_H

#include "flowtally_reader.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ft_state { FT_BOOT = 1, FT_RUN = 2, FT_HALT = 3, FT_FAIL = 4 };

typedef struct ft_status {
	uint32_t state;
	int alive;            /* BOOT or RUN, a heartbeat within two periods, not given up */
	int64_t age;          /* ns since the last heartbeat */
	int64_t period;       /* ns between heartbeats */
	uint64_t generation;  /* another one: another writer took the file */
	uint64_t takeovers;
	int64_t started;      /* ns of CLOCK_MONOTONIC */
	uint64_t cycle_begun, cycle_done;
	int64_t cycle_done_at;
	uint64_t catalogue_changes; /* moved: look names up again */
	uint32_t counters, counters_used; /* block counters: room in the segments, and in use */
	uint32_t records, records_used;   /* latency counters */
	uint32_t segments;
	uint32_t counter_limit, record_limit; /* by the operator; 0: no limit; UINT32_MAX: no counters at all */
	uint64_t refused;     /* counters refused because the mirror was full */
	uint64_t file;        /* names this file */
	uint64_t replaced;    /* not 0: given up; file of the one that has the name now, or 1 */
} ft_status;

FT_API int ft_get_status(const ft_reader *r, ft_status *out);
/* ns from one poll cycle to the next, at present; 0: no fixed time, or not told. */
FT_API int64_t ft_poll_period(const ft_reader *r);
/* "boot", "run", ...; "invalid" for another number. Of static storage. */
FT_API const char *ft_state_name(uint32_t state);

#ifndef FLOWTALLY_SHARED
FT_API int ft_get_status(const ft_reader *r, ft_status *out) {
	const unsigned char *p = r->base;
	/* Differences of words of the file are taken as unsigned: garbage must not overflow. */
	const uint64_t age = (uint64_t)ft_now() - ft_u64(p, FT_HDR_HEARTBEAT);
	const uint64_t period = ft_u64(p, FT_HDR_HEARTBEAT_PERIOD);
	out->state = ft_u32(p, FT_HDR_STATE);
	out->age = (int64_t)age;
	out->period = (int64_t)period;
	out->generation = ft_u64(p, FT_HDR_GENERATION);
	out->takeovers = ft_u64(p, FT_HDR_TAKEOVERS);
	out->started = ft_i64(p, FT_HDR_STARTED);
	out->cycle_done = ft_acquire(ft_word(p, FT_HDR_CYCLE_DONE));
	out->cycle_begun = ft_u64(p, FT_HDR_CYCLE_BEGUN);
	out->cycle_done_at = ft_i64(p, FT_HDR_CYCLE_DONE_AT);
	out->catalogue_changes = ft_acquire(ft_word(p, FT_HDR_CATALOGUE_CHANGES));
	out->counters_used = ft_u32(p, FT_HDR_COUNTERS_USED);
	out->records_used = ft_u32(p, FT_HDR_RECORDS_USED);
	out->segments = ft_segments(r);
	out->counters = out->records = 0;
	for (uint32_t n = 0; n < out->segments; n++) {
		const uint32_t kind = ft_u32(p, FT_HDR_DESCRIPTORS + (size_t)n * FT_DSC_SIZE + FT_DSC_KIND);
		if (kind == FT_KIND_BLOCKS) out->counters += FT_SEG_COUNTERS;
		if (kind == FT_KIND_RECORDS) out->records += FT_SEG_COUNTERS;
	}
	out->counter_limit = ft_u32(p, FT_HDR_COUNTER_LIMIT);
	out->record_limit = ft_u32(p, FT_HDR_RECORD_LIMIT);
	out->refused = ft_u64(p, FT_HDR_REFUSED);
	out->file = r->file;
	out->replaced = ft_acquire(ft_word(p, FT_HDR_REPLACED));
	/* A heartbeat that is newer than our reading of the clock is alive: its age is below zero. */
	out->alive = (out->state == FT_BOOT || out->state == FT_RUN) && (out->age < 0 || age / 2 <= period) &&
		     out->replaced == 0;
	return ft_whole(r);
}

FT_API int64_t ft_poll_period(const ft_reader *r) {
	const int64_t period = ft_i64(r->base, FT_HDR_POLL_PERIOD);
	return period > 0 ? period : 0;
}

FT_API const char *ft_state_name(uint32_t state) {
	switch (state) {
	case FT_BOOT: return "boot";
	case FT_RUN: return "run";
	case FT_HALT: return "halt";
	case FT_FAIL: return "fail";
	default: return "invalid";
	}
}
#endif /* FLOWTALLY_SHARED */

#ifdef __cplusplus
}
#endif

#endif /* FLOWTALLY_STATUS_H */
