/* SPDX-License-Identifier: Apache-2.0 */
//go:build cgo

#include "efa_linux.h"
#include "dl_linux.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct ft_efa *ft_efa_load(const uint8_t *path, char *why, size_t whylen) {
	struct ft_efa *e = calloc(1, sizeof *e);
	if (!e) {
		snprintf(why, whylen, "out of memory");
		return NULL;
	}
	const struct ft_symbol symbols[] = {{"efadv_create_comp_cntr", "EFA_1.7", &e->create_comp_cntr, 1}};
	e->lib = ft_dlopen((const char *)path, 1, symbols, 1, why, whylen);
	if (e->lib) return e;
	free(e);
	return NULL;
}

void ft_efa_unload(struct ft_efa *e) {
	dlclose(e->lib);
	free(e);
}

int ft_efa_create_comp_cntr(const struct ft_efa *e, uintptr_t ctx, uint32_t type, uint8_t *comp, uint8_t *err, uintptr_t *cntr) {
	struct ibv_comp_cntr_init_attr attr = {.type = type};
	struct efadv_comp_cntr_init_attr efa = {
		.flags = (comp ? EFADV_COMP_CNTR_INIT_WITH_COMP_EXTERNAL_MEM : 0) | (err ? EFADV_COMP_CNTR_INIT_WITH_ERR_EXTERNAL_MEM : 0),
		.comp_cntr_ext_mem = {.ptr = comp, .type = EFADV_MEMORY_LOCATION_VA},
		.err_cntr_ext_mem = {.ptr = err, .type = EFADV_MEMORY_LOCATION_VA},
	};
	/* The device writes whole words. */
	if (((uintptr_t)comp | (uintptr_t)err) % sizeof(uint64_t)) return EINVAL;
	CREATE(cntr, e->create_comp_cntr((struct ibv_context *)ctx, &attr, &efa, sizeof efa));
}
