/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_ib_counters.c: counters objects of flows. The first flow that names an object brings the description of its
 * points, which goes with the last flow. The hardware counter is the object's own and lives as long as it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../nic.h"
#include "mlx5_ib_flow.h"

enum { MAX_COUNTERS_NUM = UINT16_MAX / 8 };

int mlx5_ib_create_counters(struct uv_counters *counters, struct uv_call *call)
{
	(void)counters;
	return uv_without(call->device, "counters") ? EOPNOTSUPP : 0;
}

int mlx5_ib_destroy_counters(struct uv_counters *counters, struct uv_call *call)
{
	struct mlx5_ib_mcounters *m = (struct mlx5_ib_mcounters *)counters;
	(void)call;
	free(m->desc);
	m->desc = NULL;
	return 0;
}

/* PREFER_CACHED is not looked at, as in the kernel, except by the mutant read_cache: a driver with a cache, so that a test
 * sees whether the flag arrives. */
int mlx5_ib_read_counters(struct uv_counters *counters, uint64_t *values, unsigned n, uint64_t flags)
{
	struct mlx5_ib_mcounters *m = (struct mlx5_ib_mcounters *)counters;
	uint64_t read[2] = {0};
	struct nic *nic;
	bool cached = (flags & IB_UVERBS_READ_COUNTERS_PREFER_CACHED) && uv_mutant("read_cache");
	if (m->max_index > n)
		return EINVAL;
	if (!m->readable)
		return EFAULT; /* where the kernel calls a null pointer */
	int err = uv_gate(counters->object.device, "QUERY_FLOW_COUNTER");
	if (!err)
		err = uv_device_nic(counters->object.device, &nic);
	if (!err && cached)
		memcpy(read, m->cached, sizeof(read));
	else if (!err)
		err = nic_counter_read(nic, &m->hw, &read[IB_COUNTER_PACKETS], &read[IB_COUNTER_BYTES]);
	if (!err)
		memcpy(m->cached, read, sizeof(read));
	if (err == ENODEV) {
		counters->object.device->unplugged = true;
		err = EIO;
	}
	for (uint32_t i = 0; i < m->ncounters && !err; i++)
		values[m->desc[i].index] += read[m->desc[i].description];
	return err;
}

static int set_description(struct mlx5_ib_mcounters *m, struct mlx5_ib_flow_counters_desc *desc, uint32_t n)
{
	uint32_t max_index = 0;
	m->readable = true;
	m->ncounters = n;
	for (uint32_t i = 0; i < n; i++) {
		if (desc[i].description > IB_COUNTER_BYTES)
			return EINVAL;
		if (max_index <= desc[i].index)
			max_index = desc[i].index + 1;
	}
	m->desc = desc;
	m->max_index = max_index;
	return 0;
}

int mlx5_ib_flow_counters_set_data(struct uv_counters *counters, struct uv_call *call,
				   const struct mlx5_ib_flow_counters_data *data)
{
	struct mlx5_ib_mcounters *m = (struct mlx5_ib_mcounters *)counters;
	struct mlx5_ib_flow_counters_desc *desc;
	if (!data)
		return m->max_index ? 0 : EINVAL;
	if (data->ncounters > MAX_COUNTERS_NUM)
		return EINVAL;
	desc = calloc(data->ncounters + 1, sizeof(*desc));
	if (!desc)
		return ENOMEM;
	int err = uv_copy_from_user(call->task, desc, data->counters_data, data->ncounters * sizeof(*desc));
	if (!err && m->max_index) /* bound to a flow already */
		err = EINVAL;
	if (!err)
		err = set_description(m, desc, data->ncounters);
	if (err)
		free(desc);
	return err;
}

void mlx5_ib_counters_unuse(struct uv_counters *counters)
{
	struct mlx5_ib_mcounters *m = (struct mlx5_ib_mcounters *)counters;
	if (--counters->object.uses)
		return;
	free(m->desc);
	m->desc = NULL;
	m->max_index = m->ncounters = 0;
}
