/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_query.c: the attributes of a device and of its one port. */
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#include "verbs_data.h"

#define MAX_QP 4096
#define MAX_OBJECTS (1 << 16)

static void fill(struct soft_device *d, struct ibv_device_attr *a)
{
	extern uint64_t ibv_get_device_guid(struct ibv_device *);
	memset(a, 0, sizeof(*a));
	strcpy(a->fw_ver, "0.1.0");
	a->node_guid = a->sys_image_guid = ibv_get_device_guid(&d->device);
	a->max_mr_size = UINT64_MAX;
	a->page_size_cap = 4096;
	a->max_qp = MAX_QP;
	a->max_qp_wr = 1 << 14;
	a->device_cap_flags = IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID;
	if (!verbs_without(d->device.name, "flows"))
		a->device_cap_flags |= IBV_DEVICE_MANAGED_FLOW_STEERING;
	a->max_sge = a->max_sge_rd = RDMA_MAX_SGE;
	a->max_cq = MAX_QP;
	a->max_cqe = 1 << 16;
	a->max_mr = a->max_pd = MAX_OBJECTS;
	a->max_raw_ethy_qp = verbs_without(d->device.name, "raw") ? 0 : MAX_QP;
	a->max_qp_rd_atom = a->max_qp_init_rd_atom = RDMA_RD_ATOMIC;
	a->max_res_rd_atom = RDMA_RD_ATOMIC * MAX_QP;
	a->max_ah = MAX_OBJECTS;
	a->max_pkeys = 1;
	a->phys_port_cnt = 1;
}

VERBS_PUBLIC int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	int err = verbs_gate(context, "ibv_query_device");
	if (!err)
		fill(verbs_context_of(context)->device, attr);
	return err;
}

/* size is the caller's: an older program has a shorter structure. */
int verbs_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
			  struct ibv_device_attr_ex *attr, size_t size)
{
	struct ibv_device_attr_ex a;
	int err = verbs_gate(context, "ibv_query_device_ex");
	if (err)
		return err;
	if (size < sizeof(a.orig_attr) || (input && input->comp_mask))
		return EINVAL;
	memset(&a, 0, sizeof(a));
	fill(verbs_context_of(context)->device, &a.orig_attr);
	a.device_cap_flags_ex = a.orig_attr.device_cap_flags;
	a.phys_port_cnt_ex = 1;
	memset(attr, 0, size);
	memcpy(attr, &a, size < sizeof(a) ? size : sizeof(a));
	return 0;
}

/* The largest InfiniBand MTU that a packet of the netdev's MTU carries, RoCE's headers
 * off. */
static uint32_t active_mtu(struct soft_device *d)
{
	struct ifreq r = {0};
	memcpy(r.ifr_name, d->netdev, IFNAMSIZ);
	if (ioctl(d->socket, SIOCGIFMTU, &r))
		return IBV_MTU_256;
	uint32_t mtu = IBV_MTU_256;
	while (mtu < IBV_MTU_4096 && (128 << (mtu + 1)) + 64 <= r.ifr_mtu)
		mtu++;
	return mtu;
}

uint32_t verbs_mtu(struct ibv_context *context)
{
	return 128U << active_mtu(verbs_context_of(context)->device);
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size)
{
	struct ibv_port_attr a;
	struct soft_device *d = verbs_context_of(context)->device;
	int err = verbs_begin(context, "ibv_query_port");
	if (err)
		return err;
	bool up = !d->kernel.port_down && verbs_device_linked(d);
	uv_unlock();
	if (port != 1)
		return EINVAL;
	memset(&a, 0, sizeof(a));
	a.state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
	a.phys_state = up ? 5 : 3; /* LinkUp, Disabled */
	a.max_mtu = IBV_MTU_4096;
	a.active_mtu = active_mtu(d);
	a.gid_tbl_len = 1;
	a.max_msg_sz = 1U << 30;
	a.pkey_tbl_len = 1;
	a.active_width = 2; /* 4X */
	a.active_speed = 32; /* EDR: 4 x 25 Gb/s; nothing here is paced by it */
	a.link_layer = IBV_LINK_LAYER_ETHERNET;
	memset(attr, 0, size);
	memcpy(attr, &a, size < sizeof(a) ? size : sizeof(a));
	return 0;
}

int verbs_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size)
{
	return query_port(context, port, attr, size);
}

/* The exported symbol is for programs from before port_cap_flags2: it fills up to flags. */
VERBS_PUBLIC int ibv_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
{
	return query_port(context, port, attr, offsetof(struct ibv_port_attr, port_cap_flags2));
}

VERBS_PUBLIC int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	int err = verbs_gate(context, "ibv_query_gid");
	if (!err && (port != 1 || index))
		err = EINVAL;
	if (!err) {
		uv_gid(&verbs_context_of(context)->device->kernel, gid->raw);
		return 0;
	}
	errno = err;
	return -1;
}
