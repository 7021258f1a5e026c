/* SPDX-License-Identifier: Apache-2.0
 *
 * The C side of libefa, of which one function is used. As in verbs_linux.h, wrappers
 * return 0 or a positive errno, and objects cross as integers. */
#ifndef FLOWTALLY_EFA_LINUX_H
#define FLOWTALLY_EFA_LINUX_H

#include "efa_abi.h"

struct ft_efa {
	void *lib;
	struct ibv_comp_cntr *(*create_comp_cntr)(struct ibv_context *, struct ibv_comp_cntr_init_attr *,
						  struct efadv_comp_cntr_init_attr *, uint32_t inlen);
};

/* ft_efa_load opens the library of that path, a C string. On failure it returns NULL
 * and a text in why. */
struct ft_efa *ft_efa_load(const uint8_t *path, char *why, size_t whylen);
void ft_efa_unload(struct ft_efa *e);

/* comp and err are words that the device writes until the counter is destroyed; NULL is
 * the library's own. */
int ft_efa_create_comp_cntr(const struct ft_efa *e, uintptr_t ctx, uint32_t type, uint8_t *comp, uint8_t *err, uintptr_t *cntr);

#endif
