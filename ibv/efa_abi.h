/* SPDX-License-Identifier: Apache-2.0
 *
 * efa_abi.h: the part of libefa's direct verbs that this package uses, as verbs_abi.h is for
 * libibverbs. Names and layouts come from <infiniband/efadv.h> of rdma-core 65, where completion
 * counters are new (EFA_1.7). */
#ifndef FLOWTALLY_EFA_ABI_H
#define FLOWTALLY_EFA_ABI_H

#include "internal/abi/verbs_abi.h"

#define EFADV_MEMORY_LOCATION_VA 0

struct efadv_memory_location {
	uint8_t *ptr;
	struct {
		uint64_t offset;
		int32_t fd;
		uint32_t reserved;
	} dmabuf;
	uint8_t type;
	uint8_t reserved[7];
};

#define EFADV_COMP_CNTR_INIT_WITH_COMP_EXTERNAL_MEM 1
#define EFADV_COMP_CNTR_INIT_WITH_ERR_EXTERNAL_MEM 2

struct efadv_comp_cntr_init_attr {
	uint64_t comp_mask;
	uint32_t flags;
	uint32_t reserved;
	struct efadv_memory_location comp_cntr_ext_mem;
	struct efadv_memory_location err_cntr_ext_mem;
};

#endif
