/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_pd.c: protection domains. */
#include <errno.h>
#include <stdlib.h>

#include "verbs_data.h"

static void release_pd(struct soft_object *o)
{
	free(RDMA_OUTER(o, struct soft_pd, object));
}

VERBS_PUBLIC struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	int err = verbs_begin(context, "ibv_alloc_pd");
	if (err)
		return verbs_made(NULL, err);
	struct soft_pd *p = calloc(1, sizeof(*p));
	if (p) {
		p->pd.context = context;
		verbs_adopt(context, &p->object, release_pd);
	}
	uv_unlock();
	return verbs_made(p, p ? 0 : ENOMEM);
}

VERBS_PUBLIC int ibv_dealloc_pd(struct ibv_pd *pd)
{
	return verbs_destroy(pd->context, "ibv_dealloc_pd", &((struct soft_pd *)pd)->object);
}

void verbs_pd_use(struct ibv_pd *pd, int by)
{
	((struct soft_pd *)pd)->object.users += by;
}
