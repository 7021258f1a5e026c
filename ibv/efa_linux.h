/* SPDX-License-Identifier: Apache-2.0
 *
 * The C side of libefa. As in verbs_linux.h, wrappers return 0 or a positive errno, and objects
 * cross as integers. */
#ifndef FLOWTALLY_EFA_LINUX_H
#define FLOWTALLY_EFA_LINUX_H

#include "efa_abi.h"

struct ft_efa {
	void *lib;
	struct ibv_comp_cntr *(*create_comp_cntr)(struct ibv_context *, struct ibv_comp_cntr_init_attr *,
						  struct efadv_comp_cntr_init_attr *, uint32_t inlen);
	struct ibv_qp *(*create_qp_ex)(struct ibv_context *, struct ibv_qp_init_attr_ex *, struct efadv_qp_init_attr *, uint32_t inlen);
	int (*query_device)(struct ibv_context *, struct efadv_device_attr *, uint32_t inlen);
};

/* ft_efa_load opens the library of that path, a C string: one with completion counters, or, if
 * srd is set, one with SRD queue pairs. On failure it returns NULL and a text in why. */
struct ft_efa *ft_efa_load(const uint8_t *path, int srd, char *why, size_t whylen);
void ft_efa_unload(struct ft_efa *e);

/* comp and err are words that the device writes until the counter is destroyed; NULL is
 * the library's own. */
int ft_efa_create_comp_cntr(const struct ft_efa *e, uintptr_t ctx, uint32_t type, uint8_t *comp, uint8_t *err, uintptr_t *cntr);

/* ft_efa_create_srd makes an SRD queue pair with every operation that the device has. */
int ft_efa_create_srd(const struct ft_efa *e, uintptr_t ctx, uintptr_t pd, uintptr_t send_cq, uintptr_t recv_cq,
		      const struct ibv_qp_cap *cap, int sq_sig_all, uintptr_t *qp, uint32_t *qp_num);
/* ft_efa_query_device gets the device's EFADV_DEVICE_ATTR_CAPS_*. */
int ft_efa_query_device(const struct ft_efa *e, uintptr_t ctx, uint32_t *caps, uint32_t *max_rdma_size);

#endif
