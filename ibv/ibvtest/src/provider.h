/* SPDX-License-Identifier: Apache-2.0
 *
 * provider.h: the common part of libmlx5.so.1 and libefa.so.1. */
#ifndef FLOWTALLY_IBVTEST_PROVIDER_H
#define FLOWTALLY_IBVTEST_PROVIDER_H

#include "nic_device.h"

#define PROVIDER_PUBLIC __attribute__((visibility("default")))

/* The way into the libibverbs that made the device; NULL when it is not one of ours. */
const struct ibvtest_device_ops *provider_ops(const struct ibv_device *device);

#endif
