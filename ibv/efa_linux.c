/* SPDX-License-Identifier: Apache-2.0 */
//go:build cgo

#include "efa_linux.h"
#include "dl_linux.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ft_efa *ft_efa_load(const uint8_t *path, int srd, char *why, size_t whylen) {
	struct ft_efa *e = calloc(1, sizeof *e);
	if (!e) {
		snprintf(why, whylen, "out of memory");
		return NULL;
	}
	const struct ft_symbol symbols[] = {
		{"efadv_create_comp_cntr", "EFA_1.7", &e->create_comp_cntr, !srd},
		{"efadv_create_qp_ex", "EFA_1.1", &e->create_qp_ex, srd},
		{"efadv_query_device", "EFA_1.1", &e->query_device, srd},
	};
	e->lib = ft_dlopen((const char *)path, 1, symbols, sizeof symbols / sizeof *symbols, why, whylen);
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

int ft_efa_query_device(const struct ft_efa *e, uintptr_t ctx, uint32_t *caps, uint32_t *max_rdma_size) {
	struct efadv_device_attr attr;
	memset(&attr, 0, sizeof attr);
	int err = CALL(e->query_device((struct ibv_context *)ctx, &attr, sizeof attr));
	*caps = attr.device_caps;
	*max_rdma_size = attr.max_rdma_size;
	return err;
}

int ft_efa_create_srd(const struct ft_efa *e, uintptr_t ctx, uintptr_t pd, uintptr_t send_cq, uintptr_t recv_cq,
		      const struct ibv_qp_cap *cap, int sq_sig_all, uintptr_t *out, uint32_t *qp_num) {
	uint32_t caps, max;
	int err = ft_efa_query_device(e, ctx, &caps, &max);
	if (err) return err;
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = (struct ibv_cq *)send_cq,
		.recv_cq = (struct ibv_cq *)recv_cq,
		.cap = *cap,
		.qp_type = IBV_QPT_DRIVER,
		.sq_sig_all = sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = (struct ibv_pd *)pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
	};
	if (caps & EFADV_DEVICE_ATTR_CAPS_RDMA_READ) attr.send_ops_flags |= IBV_QP_EX_WITH_RDMA_READ;
	if (caps & EFADV_DEVICE_ATTR_CAPS_RDMA_WRITE) attr.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
	struct efadv_qp_init_attr efa;
	memset(&efa, 0, sizeof efa); /* the padding is reserved */
	efa.driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD;
	errno = 0;
	struct ibv_qp *qp = e->create_qp_ex((struct ibv_context *)ctx, &attr, &efa, sizeof efa);
	if (!qp) return ft_no_object();
	*qp_num = qp->qp_num;
	*out = (uintptr_t)qp;
	return 0;
}
