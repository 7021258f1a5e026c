/* SPDX-License-Identifier: Apache-2.0
 *
 * The C side of DevX: libmlx5 as a table of functions, one wrapper per call. As in
 * verbs_linux.h, wrappers return 0 or a positive errno, and objects cross as integers.
 * Buffers are read and written during the call alone. */
#ifndef FLOWTALLY_MLX5_LINUX_H
#define FLOWTALLY_MLX5_LINUX_H

#include "mlx5_abi.h"

#include <stdbool.h>

struct ft_mlx5 {
	void *lib;
	bool (*is_supported)(struct ibv_device *);
	struct ibv_context *(*open_device)(struct ibv_device *, struct mlx5dv_context_attr *);
	struct mlx5dv_devx_obj *(*obj_create)(struct ibv_context *, const void *, size_t, void *, size_t);
	int (*obj_query)(struct mlx5dv_devx_obj *, const void *, size_t, void *, size_t);
	int (*obj_destroy)(struct mlx5dv_devx_obj *);
	int (*general_cmd)(struct ibv_context *, const void *, size_t, void *, size_t);
	struct mlx5dv_flow_matcher *(*create_matcher)(struct ibv_context *, struct mlx5dv_flow_matcher_attr *);
	int (*destroy_matcher)(struct mlx5dv_flow_matcher *);
	/* Actions that this one reads must read the same at two strides: see mlx5_abi.h. */
	struct ibv_flow *(*create_flow)(struct mlx5dv_flow_matcher *, struct mlx5dv_flow_match_parameters *, size_t, void *);
	int (*init_obj)(struct mlx5dv_obj *, uint64_t); /* only ft_mlx5_cq needs it */
	struct ibv_cq *(*create_cq)(struct ibv_context *, struct ibv_cq_init_attr_ex *, struct mlx5dv_cq_init_attr *); /* only ft_mlx5_create_cq */
	/* All four are present, or ft_mlx5_create_cmd_comp returns ENOSYS. */
	struct mlx5dv_devx_cmd_comp *(*create_cmd_comp)(struct ibv_context *);
	void (*destroy_cmd_comp)(struct mlx5dv_devx_cmd_comp *);
	int (*obj_query_async)(struct mlx5dv_devx_obj *, const void *, size_t, size_t, uint64_t, struct mlx5dv_devx_cmd_comp *);
	int (*get_async_cmd_comp)(struct mlx5dv_devx_cmd_comp *, struct mlx5dv_devx_async_cmd_hdr *, size_t);
	/* All are present, or the queues of DevX return ENOSYS. */
	int (*obj_modify)(struct mlx5dv_devx_obj *, const void *, size_t, void *, size_t);
	struct mlx5dv_devx_umem *(*umem_reg)(struct ibv_context *, void *, size_t, uint32_t);
	int (*umem_dereg)(struct mlx5dv_devx_umem *);
	struct mlx5dv_devx_uar *(*alloc_uar)(struct ibv_context *, uint32_t);
	void (*free_uar)(struct mlx5dv_devx_uar *);
	int (*query_eqn)(struct ibv_context *, uint32_t, uint32_t *);
	/* NULL before rdma-core 60, and in 60.0, 60.1, 61.0 and 62.0 */
	struct ibv_flow *(*create_flow_60)(struct mlx5dv_flow_matcher *, struct mlx5dv_flow_match_parameters *, size_t,
					   struct ft_flow_action_attr_60 *, size_t);
};

/* ft_mlx5_load opens the library of that path, a C string. On failure it returns NULL
 * and a text in why. */
struct ft_mlx5 *ft_mlx5_load(const uint8_t *path, char *why, size_t whylen);
void ft_mlx5_unload(struct ft_mlx5 *m);

/* Of the device that ctx has open. */
int ft_mlx5_supported(const struct ft_mlx5 *m, uintptr_t ctx);
int ft_mlx5_open(const struct ft_mlx5 *m, uintptr_t ctx, uintptr_t *devx_ctx);

int ft_mlx5_general_cmd(const struct ft_mlx5 *m, uintptr_t ctx, const uint8_t *in, size_t inlen, uint8_t *out, size_t outlen);
int ft_mlx5_obj_create(const struct ft_mlx5 *m, uintptr_t ctx, const uint8_t *in, size_t inlen, uint8_t *out, size_t outlen,
		       uintptr_t *obj);
int ft_mlx5_obj_query(const struct ft_mlx5 *m, uintptr_t obj, const uint8_t *in, size_t inlen, uint8_t *out, size_t outlen);
int ft_mlx5_obj_destroy(const struct ft_mlx5 *m, uintptr_t obj);

int ft_mlx5_create_matcher(const struct ft_mlx5 *m, uintptr_t ctx, const uint8_t *mask, size_t len, uint8_t criteria,
			   uint16_t priority, uint32_t flags, uintptr_t *matcher);
int ft_mlx5_destroy_matcher(const struct ft_mlx5 *m, uintptr_t matcher);

/* counters 0: the flow has no counter. */
int ft_mlx5_create_flow(const struct ft_mlx5 *m, uintptr_t matcher, const uint8_t *value, size_t len, uintptr_t counters,
			uint32_t offset, int default_miss, int drop, uintptr_t *flow);

/* Asynchronous queries. fd is readable when a result is ready: the wr_id of its query and the
 * command's output, which needs room for outlen bytes. */
int ft_mlx5_create_cmd_comp(const struct ft_mlx5 *m, uintptr_t ctx, uintptr_t *comp, int *fd);
void ft_mlx5_destroy_cmd_comp(const struct ft_mlx5 *m, uintptr_t comp);
int ft_mlx5_obj_query_async(const struct ft_mlx5 *m, uintptr_t obj, const uint8_t *in, size_t inlen, size_t outlen, uint64_t wr_id,
			    uintptr_t comp);
int ft_mlx5_get_async_cmd_comp(const struct ft_mlx5 *m, uintptr_t comp, uint64_t *wr_id, uint8_t *out, size_t outlen);

/* A completion queue with entries of that size, compressed if format is not 0. */
int ft_mlx5_create_cq(const struct ft_mlx5 *m, uintptr_t ctx, int cqe, int vector, int size, int format, uintptr_t *cq, int *got);

/* The queues of DevX. ENOSYS: the library is too old. */
int ft_mlx5_obj_modify(const struct ft_mlx5 *m, uintptr_t obj, const uint8_t *in, size_t inlen, uint8_t *out, size_t outlen);
int ft_mlx5_umem_reg(const struct ft_mlx5 *m, uintptr_t ctx, uint8_t *mem, size_t len, uint32_t access, uintptr_t *umem, uint32_t *id);
int ft_mlx5_umem_dereg(const struct ft_mlx5 *m, uintptr_t umem);
/* reg is the address of the doorbell register. */
int ft_mlx5_alloc_uar(const struct ft_mlx5 *m, uintptr_t ctx, uintptr_t *uar, uintptr_t *reg, uint32_t *page);
void ft_mlx5_free_uar(const struct ft_mlx5 *m, uintptr_t uar);
int ft_mlx5_query_eqn(const struct ft_mlx5 *m, uintptr_t ctx, uint32_t vector, uint32_t *eqn);
int ft_mlx5_pdn(const struct ft_mlx5 *m, uintptr_t pd, uint32_t *pdn);
/* The hardware address of a path's next hop: zeros where the port is not Ethernet. */
int ft_mlx5_rmac(const struct ft_mlx5 *m, uintptr_t ah, uint8_t mac[6]);
/* Tells the device that requests up to an index were written: the doorbell record at db, 4-byte aligned, and with a
 * register also the first 8 bytes of the last request. */
void ft_mlx5_doorbell(uint8_t *db, uint32_t index, uintptr_t reg, const uint8_t *wqe);

/* The ring of a completion queue; it is the queue's as long as that lives. */
int ft_mlx5_cq(const struct ft_mlx5 *m, uintptr_t cq, struct mlx5dv_cq *ring);

#endif
