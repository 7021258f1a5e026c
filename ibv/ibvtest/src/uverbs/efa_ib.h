/* SPDX-License-Identifier: Apache-2.0
 *
 * efa_ib.h: the declarations that the files of the driver efa share. Operations are named in efa_ib_main.c. */
#ifndef EFA_IB_H
#define EFA_IB_H

#include "efa_abi_kernel.h"
#include "uverbs.h"

struct efa_pd {
	struct uv_pd ibpd;
	uint16_t pdn;
};

struct efa_ah {
	struct uv_ah ibah;
	uint16_t number;
};

/* efa_number returns a number that no object of the device had: PD, AH, QP and MR take theirs here. */
uint32_t efa_number(void);

#endif
