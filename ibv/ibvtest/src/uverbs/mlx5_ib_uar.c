/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_ib_uar.c: user access regions, the pages with the doorbells. */
#include <errno.h>
#include <unistd.h>

#include "mlx5_ib.h"

struct mlx5_uar {
	struct uv_object object;
	uint64_t key;
	uint32_t page;
};

bool mlx5_ib_has_uar(const struct uv_file *file, uint32_t page)
{
	for (const struct uv_object *o = file->objects; o; o = o->next)
		if (o->type == MLX5_IB_OBJECT_UAR && ((const struct mlx5_uar *)o)->page == page)
			return true;
	return false;
}

static int destroy(struct uv_object *o, struct uv_call *call)
{
	(void)call;
	uv_mmap_remove(o->file, ((struct mlx5_uar *)o)->key);
	return 0;
}

static int alloc(struct uv_call *call)
{
	struct mlx5_uar *u = (struct mlx5_uar *)uv_attr_object(call, MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE);
	uint32_t length = sysconf(_SC_PAGESIZE), page = mlx5_ib_number();
	uint64_t type;
	void *at;
	int err = uv_get_const(call, MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, UINT64_MAX, &type);
	if (!err && type > MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC)
		err = EOPNOTSUPP;
	if (err || (err = uv_mmap_insert(u->object.file, length, &u->key, &at)))
		return err;
	u->object.destroy = destroy;
	u->page = page;
	err = uv_copy_to(call, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, &u->key, sizeof(u->key));
	if (!err)
		err = uv_copy_to(call, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, &length, sizeof(length));
	if (!err)
		err = uv_copy_to(call, MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, &page, sizeof(page));
	if (err)
		(void)destroy(&u->object, NULL);
	return err;
}

static int destroyed(struct uv_call *call)
{
	(void)call;
	return 0;
}

static const struct uv_attr_spec alloc_attrs[] = {
	UV_ATTR_IDR(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, MLX5_IB_OBJECT_UAR, UV_NEW, UV_MANDATORY),
	UV_ATTR_CONST_IN(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, UV_MANDATORY),
	UV_ATTR_TYPE_OUT(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, uint64_t, UV_MANDATORY),
	UV_ATTR_TYPE_OUT(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, uint32_t, UV_MANDATORY),
	UV_ATTR_TYPE_OUT(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, uint32_t, UV_MANDATORY),
	{0}};
static const struct uv_attr_spec destroy_attrs[] = {
	UV_ATTR_IDR(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, MLX5_IB_OBJECT_UAR, UV_DESTROY, UV_MANDATORY), {0}};

const struct uv_method mlx5_ib_uar_methods[] = {
	{MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, "UAR_OBJ_ALLOC", alloc_attrs, alloc},
	{MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY, "UAR_OBJ_DESTROY", destroy_attrs, destroyed},
	{0}};
