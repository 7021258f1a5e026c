/* SPDX-License-Identifier: Apache-2.0
 *
 * Completion counters: symbols of IBVERBS_1.18. The function that creates a counter calls
 * ft_has_comp_cntrs first, so functions that take a counter need not check the symbols again. */
//go:build cgo

#include "verbs_linux.h"
#include "dl_linux.h"

#include <errno.h>

int ft_has_comp_cntrs(const struct ft_verbs *v) {
	return v->create_comp_cntr && v->destroy_comp_cntr && v->set_comp_cntr && v->set_err_comp_cntr && v->inc_comp_cntr &&
	       v->inc_err_comp_cntr && v->read_comp_cntr && v->read_err_comp_cntr && v->qp_attach_comp_cntr;
}

int ft_create_comp_cntr(const struct ft_verbs *v, uintptr_t ctx, uint32_t comp_mask, uint32_t type, uint32_t flags, uintptr_t *cntr) {
	struct ibv_comp_cntr_init_attr attr = {.comp_mask = comp_mask, .type = type, .flags = flags};
	if (!ft_has_comp_cntrs(v)) return ENOSYS;
	CREATE(cntr, v->create_comp_cntr((struct ibv_context *)ctx, &attr));
}

int ft_destroy_comp_cntr(const struct ft_verbs *v, uintptr_t cntr) {
	return CALL(v->destroy_comp_cntr((struct ibv_comp_cntr *)cntr));
}

int ft_set_comp_cntr(const struct ft_verbs *v, uintptr_t cntr, enum ft_word word, uint64_t value) {
	return CALL((word == FT_ERR ? v->set_err_comp_cntr : v->set_comp_cntr)((struct ibv_comp_cntr *)cntr, value));
}

int ft_inc_comp_cntr(const struct ft_verbs *v, uintptr_t cntr, enum ft_word word, uint64_t amount) {
	return CALL((word == FT_ERR ? v->inc_err_comp_cntr : v->inc_comp_cntr)((struct ibv_comp_cntr *)cntr, amount));
}

int ft_read_comp_cntr(const struct ft_verbs *v, uintptr_t cntr, enum ft_word word, uint64_t *value) {
	*value = 0;
	return CALL((word == FT_ERR ? v->read_err_comp_cntr : v->read_comp_cntr)((struct ibv_comp_cntr *)cntr, value));
}

int ft_attach_comp_cntr(const struct ft_verbs *v, uintptr_t qp, uintptr_t cntr, uint32_t comp_mask, uint32_t op_mask) {
	struct ibv_qp_attach_comp_cntr_attr attr = {.comp_mask = comp_mask, .op_mask = op_mask};
	return CALL(v->qp_attach_comp_cntr((struct ibv_qp *)qp, (struct ibv_comp_cntr *)cntr, &attr));
}
