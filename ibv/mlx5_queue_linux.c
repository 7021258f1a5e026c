/* SPDX-License-Identifier: Apache-2.0 */
//go:build cgo

#define _GNU_SOURCE
#include "mlx5_linux.h"
#include "dl_linux.h"

#include <endian.h>
#include <string.h>

#define UAR_ALLOC_TYPE_NC 1 /* MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC: a register that is not cached, one for all queues of a context */

static int has_queues(const struct ft_mlx5 *m) {
	return m->obj_modify && m->umem_reg && m->umem_dereg && m->alloc_uar && m->free_uar && m->query_eqn && m->init_obj;
}

int ft_mlx5_obj_modify(const struct ft_mlx5 *m, uintptr_t obj, const uint8_t *in, size_t inlen, uint8_t *out, size_t outlen) {
	return has_queues(m) ? CALL(m->obj_modify((struct mlx5dv_devx_obj *)obj, in, inlen, out, outlen)) : ENOSYS;
}

int ft_mlx5_umem_reg(const struct ft_mlx5 *m, uintptr_t ctx, uint8_t *mem, size_t len, uint32_t access, uintptr_t *umem, uint32_t *id) {
	if (!has_queues(m)) return ENOSYS;
	errno = 0;
	struct mlx5dv_devx_umem *u = m->umem_reg((struct ibv_context *)ctx, mem, len, access);
	if (!u) return ft_no_object();
	*umem = (uintptr_t)u;
	*id = u->umem_id;
	return 0;
}

int ft_mlx5_umem_dereg(const struct ft_mlx5 *m, uintptr_t umem) { return CALL(m->umem_dereg((struct mlx5dv_devx_umem *)umem)); }

int ft_mlx5_alloc_uar(const struct ft_mlx5 *m, uintptr_t ctx, uintptr_t *uar, uintptr_t *reg, uint32_t *page) {
	if (!has_queues(m)) return ENOSYS;
	errno = 0;
	struct mlx5dv_devx_uar *u = m->alloc_uar((struct ibv_context *)ctx, UAR_ALLOC_TYPE_NC);
	if (!u) return ft_no_object();
	*uar = (uintptr_t)u;
	*reg = (uintptr_t)u->reg_addr;
	*page = u->page_id;
	return 0;
}

void ft_mlx5_free_uar(const struct ft_mlx5 *m, uintptr_t uar) { m->free_uar((struct mlx5dv_devx_uar *)uar); }

int ft_mlx5_query_eqn(const struct ft_mlx5 *m, uintptr_t ctx, uint32_t vector, uint32_t *eqn) {
	return has_queues(m) ? CALL(m->query_eqn((struct ibv_context *)ctx, vector, eqn)) : ENOSYS;
}

int ft_mlx5_pdn(const struct ft_mlx5 *m, uintptr_t pd, uint32_t *pdn) {
	struct mlx5dv_pd out = {0};
	struct mlx5dv_obj obj = {.pd = {.in = (struct ibv_pd *)pd, .out = &out}};
	if (!has_queues(m)) return ENOSYS;
	int err = CALL(m->init_obj(&obj, MLX5DV_OBJ_PD));
	*pdn = out.pdn;
	return err;
}

int ft_mlx5_rmac(const struct ft_mlx5 *m, uintptr_t ah, uint8_t mac[6]) {
	struct mlx5dv_ah out = {0};
	struct mlx5dv_obj obj = {.ah = {.in = (struct ibv_ah *)ah, .out = &out}};
	if (!has_queues(m)) return ENOSYS;
	int err = CALL(m->init_obj(&obj, MLX5DV_OBJ_AH));
	if (!err) memcpy(mac, out.av->rmac, 6);
	return err;
}

/* Stores before it reach the device before those behind it: udma_to_device_barrier of rdma-core's util/udma_barrier.h. */
static inline void to_device_barrier(void) {
#if defined(__x86_64__)
	__asm__ volatile("" ::: "memory");
#elif defined(__aarch64__)
	__asm__ volatile("dmb oshst" ::: "memory");
#else
	__sync_synchronize();
#endif
}

void ft_mlx5_doorbell(uint8_t *db, uint32_t index, uintptr_t reg, const uint8_t *wqe) {
	uint64_t first;
	to_device_barrier(); /* the requests before the record */
	__atomic_store_n((uint32_t *)(void *)db, htobe32(index), __ATOMIC_RELEASE);
	if (!reg) return;
	to_device_barrier(); /* the record before the register */
	memcpy(&first, wqe, sizeof first);
	*(volatile uint64_t *)reg = first;
}
