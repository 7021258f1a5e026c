/* SPDX-License-Identifier: Apache-2.0
 *
 * provider.c: how libmlx5 and libefa find libibverbs (nic_device.h). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "provider.h"

const struct ibvtest_device_ops *provider_ops(const struct ibv_device *device)
{
	const struct ibvtest_device_ops *(*entry)(const struct ibv_device *) = NULL;
	const struct ibvtest_device_ops *ops;
	Dl_info at;

	if (!device || !device->_ops._dummy1 || !dladdr((void *)device->_ops._dummy1, &at) || !at.dli_sname ||
	    strcmp(at.dli_sname, "ibvtest_device_ops"))
		return NULL;
	memcpy(&entry, &device->_ops._dummy1, sizeof entry);
	ops = entry(device);
	return ops && ops->abi == IBVTEST_DEVICE_OPS_ABI ? ops : NULL;
}
