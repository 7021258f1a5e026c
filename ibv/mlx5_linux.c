/* SPDX-License-Identifier: Apache-2.0 */
//go:build cgo

#define _GNU_SOURCE
#include "mlx5_linux.h"
#include "dl_linux.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ft_mlx5 *ft_mlx5_load(const uint8_t *path, char *why, size_t whylen) {
	struct ft_mlx5 *m = calloc(1, sizeof *m);
	if (!m) {
		snprintf(why, whylen, "out of memory");
		return NULL;
	}
	const struct ft_symbol symbols[] = {
		{"mlx5dv_is_supported", "MLX5_1.8", &m->is_supported, 1},
		{"mlx5dv_open_device", "MLX5_1.7", &m->open_device, 1},
		{"mlx5dv_devx_obj_create", "MLX5_1.7", &m->obj_create, 1},
		{"mlx5dv_devx_obj_query", "MLX5_1.7", &m->obj_query, 1},
		{"mlx5dv_devx_obj_destroy", "MLX5_1.7", &m->obj_destroy, 1},
		{"mlx5dv_devx_general_cmd", "MLX5_1.7", &m->general_cmd, 1},
		{"mlx5dv_create_flow_matcher", "MLX5_1.6", &m->create_matcher, 1},
		{"mlx5dv_destroy_flow_matcher", "MLX5_1.6", &m->destroy_matcher, 1},
		{"mlx5dv_create_flow", "MLX5_1.6", &m->create_flow, 1},
		{"mlx5dv_init_obj", "MLX5_1.2", &m->init_obj, 0},
		{"mlx5dv_create_cq", "MLX5_1.1", &m->create_cq, 0},
		{"mlx5dv_devx_create_cmd_comp", "MLX5_1.9", &m->create_cmd_comp, 0},
		{"mlx5dv_devx_destroy_cmd_comp", "MLX5_1.9", &m->destroy_cmd_comp, 0},
		{"mlx5dv_devx_obj_query_async", "MLX5_1.9", &m->obj_query_async, 0},
		{"mlx5dv_devx_get_async_cmd_comp", "MLX5_1.9", &m->get_async_cmd_comp, 0},
		{"mlx5dv_devx_obj_modify", "MLX5_1.7", &m->obj_modify, 0},
		{"mlx5dv_devx_umem_reg", "MLX5_1.7", &m->umem_reg, 0},
		{"mlx5dv_devx_umem_dereg", "MLX5_1.7", &m->umem_dereg, 0},
		{"mlx5dv_devx_alloc_uar", "MLX5_1.7", &m->alloc_uar, 0},
		{"mlx5dv_devx_free_uar", "MLX5_1.7", &m->free_uar, 0},
		{"mlx5dv_devx_query_eqn", "MLX5_1.7", &m->query_eqn, 0},
		{"__mlx5dv_create_flow", "MLX5_1.25.1", &m->create_flow_60, 0},
	};
	m->lib = ft_dlopen((const char *)path, 1, symbols, sizeof symbols / sizeof *symbols, why, whylen);
	if (m->lib) return m;
	free(m);
	return NULL;
}

void ft_mlx5_unload(struct ft_mlx5 *m) {
	dlclose(m->lib);
	free(m);
}

static struct ibv_device *device_of(uintptr_t ctx) { return ((struct ibv_context *)ctx)->device; }

int ft_mlx5_supported(const struct ft_mlx5 *m, uintptr_t ctx) { return m->is_supported(device_of(ctx)); }

int ft_mlx5_open(const struct ft_mlx5 *m, uintptr_t ctx, uintptr_t *devx_ctx) {
	struct mlx5dv_context_attr attr = {.flags = MLX5DV_CONTEXT_FLAGS_DEVX};
	errno = 0;
	struct ibv_context *c = m->open_device(device_of(ctx), &attr);
	*devx_ctx = (uintptr_t)c;
	return c ? 0 : ft_no_object();
}

int ft_mlx5_general_cmd(const struct ft_mlx5 *m, uintptr_t ctx, const uint8_t *in, size_t inlen, uint8_t *out, size_t outlen) {
	errno = 0;
	return ft_status(m->general_cmd((struct ibv_context *)ctx, in, inlen, out, outlen));
}

int ft_mlx5_obj_create(const struct ft_mlx5 *m, uintptr_t ctx, const uint8_t *in, size_t inlen, uint8_t *out, size_t outlen,
		       uintptr_t *obj) {
	errno = 0;
	struct mlx5dv_devx_obj *o = m->obj_create((struct ibv_context *)ctx, in, inlen, out, outlen);
	*obj = (uintptr_t)o;
	return o ? 0 : ft_no_object();
}

int ft_mlx5_obj_query(const struct ft_mlx5 *m, uintptr_t obj, const uint8_t *in, size_t inlen, uint8_t *out, size_t outlen) {
	errno = 0;
	return ft_status(m->obj_query((struct mlx5dv_devx_obj *)obj, in, inlen, out, outlen));
}

int ft_mlx5_obj_destroy(const struct ft_mlx5 *m, uintptr_t obj) {
	errno = 0;
	return ft_status(m->obj_destroy((struct mlx5dv_devx_obj *)obj));
}

/* match_parameters copies a match: the library wants it aligned, behind its size. */
static struct mlx5dv_flow_match_parameters *match_parameters(const uint8_t *b, size_t len) {
	struct mlx5dv_flow_match_parameters *p = malloc(sizeof *p + len);
	if (p) {
		p->match_sz = len;
		memcpy(p->match_buf, b, len);
	}
	return p;
}

int ft_mlx5_create_matcher(const struct ft_mlx5 *m, uintptr_t ctx, const uint8_t *mask, size_t len, uint8_t criteria,
			   uint16_t priority, uint32_t flags, uintptr_t *matcher) {
	struct mlx5dv_flow_match_parameters *p = match_parameters(mask, len);
	if (!p) return ENOMEM;
	struct mlx5dv_flow_matcher_attr attr = {
		.flags = flags, .priority = priority, .match_criteria_enable = criteria, .match_mask = p,
	};
	errno = 0;
	struct mlx5dv_flow_matcher *f = m->create_matcher((struct ibv_context *)ctx, &attr);
	int err = f ? 0 : ft_no_object();
	free(p);
	*matcher = (uintptr_t)f;
	return err;
}

int ft_mlx5_destroy_matcher(const struct ft_mlx5 *m, uintptr_t matcher) {
	errno = 0;
	return ft_status(m->destroy_matcher((struct mlx5dv_flow_matcher *)matcher));
}

enum {
	MAX_ACTIONS = 3, /* counters, default miss, drop */
	STRIDE = sizeof(struct mlx5dv_flow_action_attr),
	STRIDE_60 = sizeof(struct ft_flow_action_attr_60),
};

/* The actions of a flow. Only the first may have a payload: the later ones are a type alone. */
struct actions {
	size_t n;
	_Alignas(8) uint8_t bytes[MAX_ACTIONS * STRIDE_60];
};

/* add_action appends an action without payload. If the library does not take the stride, the type
 * is written at the places of both strides. These places overlap neither the type of another
 * action nor the pointer of the first one, as long as there are at most MAX_ACTIONS. */
static void add_action(struct actions *a, uint32_t type, int told) {
	memcpy(a->bytes + a->n * STRIDE_60, &type, sizeof type);
	if (!told) memcpy(a->bytes + a->n * STRIDE, &type, sizeof type);
	a->n++;
}

int ft_mlx5_create_flow(const struct ft_mlx5 *m, uintptr_t matcher, const uint8_t *value, size_t len, uintptr_t counters,
			uint32_t offset, int default_miss, int drop, uintptr_t *flow) {
	int told = m->create_flow_60 != NULL;
	struct actions actions = {0};
	if (counters && offset && !told) return EOPNOTSUPP;
	if (counters) {
		/* a library without offsets takes the first counter of a bulk */
		struct ft_flow_action_attr_60 a = {
			.type = offset ? MLX5DV_FLOW_ACTION_COUNTERS_DEVX_WITH_OFFSET : MLX5DV_FLOW_ACTION_COUNTERS_DEVX,
			.bulk_obj = {.obj = (struct mlx5dv_devx_obj *)counters, .offset = offset},
		};
		memcpy(actions.bytes, &a, sizeof a);
		actions.n = 1;
	}
	if (default_miss) add_action(&actions, MLX5DV_FLOW_ACTION_DEFAULT_MISS, told);
	if (drop) add_action(&actions, MLX5DV_FLOW_ACTION_DROP, told);
	struct mlx5dv_flow_match_parameters *p = match_parameters(value, len);
	if (!p) return ENOMEM;
	struct mlx5dv_flow_matcher *f = (struct mlx5dv_flow_matcher *)matcher;
	errno = 0;
	struct ibv_flow *made = told ? m->create_flow_60(f, p, actions.n, (void *)actions.bytes, STRIDE_60)
				     : m->create_flow(f, p, actions.n, actions.bytes);
	int err = made ? 0 : ft_no_object();
	free(p);
	*flow = (uintptr_t)made;
	return err;
}

int ft_mlx5_create_cmd_comp(const struct ft_mlx5 *m, uintptr_t ctx, uintptr_t *comp, int *fd) {
	*comp = 0;
	if (!m->create_cmd_comp || !m->destroy_cmd_comp || !m->obj_query_async || !m->get_async_cmd_comp) return ENOSYS;
	errno = 0;
	struct mlx5dv_devx_cmd_comp *c = m->create_cmd_comp((struct ibv_context *)ctx);
	if (!c) return ft_no_object();
	*comp = (uintptr_t)c;
	*fd = c->fd;
	return 0;
}

void ft_mlx5_destroy_cmd_comp(const struct ft_mlx5 *m, uintptr_t comp) {
	m->destroy_cmd_comp((struct mlx5dv_devx_cmd_comp *)comp);
}

int ft_mlx5_obj_query_async(const struct ft_mlx5 *m, uintptr_t obj, const uint8_t *in, size_t inlen, size_t outlen, uint64_t wr_id,
			    uintptr_t comp) {
	return CALL(m->obj_query_async((struct mlx5dv_devx_obj *)obj, in, inlen, outlen, wr_id, (struct mlx5dv_devx_cmd_comp *)comp));
}

int ft_mlx5_get_async_cmd_comp(const struct ft_mlx5 *m, uintptr_t comp, uint64_t *wr_id, uint8_t *out, size_t outlen) {
	struct mlx5dv_devx_async_cmd_hdr *resp = calloc(1, sizeof *resp + outlen);
	if (!resp) return ENOMEM;
	int err = CALL(m->get_async_cmd_comp((struct mlx5dv_devx_cmd_comp *)comp, resp, sizeof *resp + outlen));
	if (!err) {
		*wr_id = resp->wr_id;
		memcpy(out, resp->out_data, outlen);
	}
	free(resp);
	return err;
}

/* The struct ibv_cq_ex that the call returns begins as a struct ibv_cq (ibv_cq_ex_to_cq). */
int ft_mlx5_create_cq(const struct ft_mlx5 *m, uintptr_t ctx, int cqe, int vector, int size, int format, uintptr_t *cq, int *got) {
	struct ibv_cq_init_attr_ex attr = {.cqe = cqe, .comp_vector = vector};
	struct mlx5dv_cq_init_attr mlx5 = {.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE, .cqe_size = size};
	if (!m->create_cq) return ENOSYS;
	if (format) {
		mlx5.comp_mask |= MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE;
		mlx5.cqe_comp_res_format = format;
	}
	errno = 0;
	struct ibv_cq *q = m->create_cq((struct ibv_context *)ctx, &attr, &mlx5);
	*cq = (uintptr_t)q;
	if (!q) return errno ? errno : EIO;
	*got = q->cqe;
	return 0;
}

int ft_mlx5_cq(const struct ft_mlx5 *m, uintptr_t cq, struct mlx5dv_cq *ring) {
	struct mlx5dv_obj obj = {.cq = {.in = (struct ibv_cq *)cq, .out = ring}};
	memset(ring, 0, sizeof *ring);
	if (!m->init_obj) return ENOSYS;
	return CALL(m->init_obj(&obj, MLX5DV_OBJ_CQ));
}
