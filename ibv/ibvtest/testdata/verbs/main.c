// SPDX-License-Identifier: Apache-2.0
// main.c: selftest CASE runs one case; selftest alone names them.
#include "check.h"

int failures;

#define CASES                                                                                                          \
	CASE(devices) CASE(query) CASE(order) CASE(states) CASE(count) CASE(sum) CASE(counters) CASE(specs)            \
	CASE(attributes) CASE(removal) CASE(fatal) CASE(port) CASE(faults) CASE(without) CASE(comp_cntr)               \
	CASE(unprivileged) CASE(threads) CASE(netdev) CASE(rc_send)             \
	CASE(rc_self) CASE(rc_rdma) CASE(rc_pieces) CASE(rc_inline) CASE(rc_signal) CASE(rc_list) CASE(wc_faults)      \
	CASE(wc_keys) CASE(mr) CASE(ud_send) CASE(ud_lost) CASE(ud_errors) CASE(uc) CASE(qp_values)                    \
	CASE(post_states) CASE(sqd) CASE(cq_overrun) CASE(event_of_object)          \
	CASE(stalls) CASE(wqe_delay) CASE(busy) CASE(gone) CASE(comp_cntr_counts)                         \
	CASE(comp_cntr_limits) CASE(comp_cntr_external) CASE(mr_iova) CASE(comp_cntr_random) CASE(comp_cntr_gone)

#define CASE(name) void case_##name(void);
CASES
#undef CASE

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
#define CASE(name) {#name, case_##name},
		CASES
#undef CASE
	};
	setvbuf(stdout, NULL, _IONBF, 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (argc == 1)
			puts(cases[i].name);
		else if (!strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			return failures > 0;
		}
	}
	return argc > 1 ? 2 : 0;
}
