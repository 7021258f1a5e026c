// SPDX-License-Identifier: Apache-2.0
// objects.c: devices, and the objects that a flow stands on.
#include "check.h"

#include <unistd.h>

void case_devices(void)
{
	int n = -1;
	struct ibv_device **list = ibv_get_device_list(&n);
	NEED(list);
	WANT(n, 2); /* mlx5_9's netdev does not exist */
	WANT(list[2] == NULL, true);
	WANT(strcmp(ibv_get_device_name(list[0]), "mlx5_0"), 0);
	WANT(ibv_get_device_guid(list[0]) != 0, true);
	WANT(ibv_get_device_guid(list[0]) != ibv_get_device_guid(list[1]), true);
	char path[512], text[64] = "";
	snprintf(path, sizeof(path), "%s/ports/1/gid_attrs/ndevs/0", list[0]->ibdev_path);
	ibv_free_device_list(list);
	FILE *f = fopen(path, "r"); /* the paths of a freed list stay valid */
	NEED(f && fgets(text, sizeof(text), f));
	fclose(f);
	WANT(strcmp(text, "v0\n"), 0);
}

void case_query(void)
{
	struct ibv_context *c = open_device("mlx5_0");
	struct ibv_device_attr_ex ex;
	struct ibv_port_attr port;
	union ibv_gid gid;
	NEED(c);
	WANT(ibv_query_device_ex(c, NULL, &ex), 0);
	WANT(ex.orig_attr.phys_port_cnt, 1);
	WANT(!!(ex.orig_attr.device_cap_flags & IBV_DEVICE_MANAGED_FLOW_STEERING), 1);
	WANT(ibv_query_port(c, 1, &port), 0);
	WANT(port.state, IBV_PORT_ACTIVE);
	WANT(port.active_mtu, IBV_MTU_4096);
	WANT(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	WANT(ibv_query_port(c, 2, &port), EINVAL);
	WANT(ibv_query_gid(c, 1, 0, &gid), 0);
	WANT(gid.raw[0], 0xfe);
	WANT(ibv_close_device(c), 0);
}

/* Nothing goes while something uses it. A context takes its objects with it. */
void case_order(void)
{
	struct rig r;
	rig_up(&r);
	char buffer[64];
	struct ibv_mr *mr = ibv_reg_mr(r.pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE);
	NEED(mr);
	WANT_NULL(ibv_reg_mr(r.pd, buffer, sizeof(buffer), IBV_ACCESS_REMOTE_WRITE), EINVAL);
	struct ibv_cq *cq = ibv_create_cq(r.context, 1, NULL, NULL, 0);
	NEED(cq);
	WANT(ibv_destroy_cq(r.cq), EBUSY);
	WANT(ibv_dealloc_pd(r.pd), EBUSY);
	struct ibv_context *other = ibv_open_device(r.context->device);
	NEED(other);
	NEED(ibv_alloc_pd(other));
	NEED(ibv_create_cq(other, 1, NULL, NULL, 0));
	WANT(ibv_close_device(other), 0);
	WANT(ibv_destroy_cq(cq), 0);
	WANT(ibv_dereg_mr(mr), 0);
	struct ibv_counters *counters = packets_and_bytes(r.context);
	struct blob b;
	blob_init(&b, 0, 0);
	blob_count(&b, counters);
	struct ibv_flow *flow = blob_flow(&b, r.qp);
	NEED(flow);
	WANT(ibv_destroy_qp(r.qp), EBUSY);
	WANT(ibv_destroy_counters(counters), EBUSY);
	WANT(ibv_destroy_flow(flow), 0);
	WANT(ibv_destroy_counters(counters), 0);
	rig_down(&r);
}

static int modify(struct ibv_qp *qp, enum ibv_qp_state to, int mask)
{
	struct ibv_qp_attr a = {.qp_state = to, .port_num = 1, .path_mtu = IBV_MTU_1024};
	a.ah_attr.is_global = a.ah_attr.port_num = 1;
	return ibv_modify_qp(qp, &a, IBV_QP_STATE | mask);
}

/* The tables of ibv_modify_qp(3). */
void case_states(void)
{
	static const struct {
		enum ibv_qp_type type;
		int init, rtr, rts;
	} types[] = {
		{IBV_QPT_RAW_PACKET, IBV_QP_PORT, 0, 0},
		{IBV_QPT_UD, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0, IBV_QP_SQ_PSN},
		{IBV_QPT_UC, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		 IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, IBV_QP_SQ_PSN},
		{IBV_QPT_RC, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		 IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_TIMEOUT},
	};
	struct rig r;
	rig_up(&r);
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		struct ibv_qp_init_attr a = qp_attr(r.cq, types[i].type), init;
		struct ibv_qp_attr now;
		struct ibv_qp *qp = ibv_create_qp(r.pd, &a);
		NEED(qp);
		WANT(modify(qp, IBV_QPS_RTR, types[i].rtr), EINVAL);
		WANT(modify(qp, IBV_QPS_INIT, types[i].init & ~IBV_QP_PORT), EINVAL);
		WANT(modify(qp, IBV_QPS_INIT, types[i].init | IBV_QP_TIMEOUT), EINVAL);
		WANT(modify(qp, IBV_QPS_INIT, types[i].init), 0);
		if (types[i].rtr)
			WANT(modify(qp, IBV_QPS_RTR, types[i].rtr & ~IBV_QP_AV), EINVAL);
		WANT(modify(qp, IBV_QPS_RTR, types[i].rtr), 0);
		if (types[i].rts)
			WANT(modify(qp, IBV_QPS_RTS, types[i].rts & ~IBV_QP_SQ_PSN), EINVAL);
		WANT(modify(qp, IBV_QPS_RTS, types[i].rts), 0);
		WANT(ibv_query_qp(qp, &now, IBV_QP_STATE, &init), 0);
		WANT(now.qp_state, IBV_QPS_RTS);
		WANT(now.port_num, 1);
		WANT(init.qp_type, types[i].type);
		WANT(modify(qp, IBV_QPS_SQD, 0), 0);
		WANT(modify(qp, IBV_QPS_RTS, 0), 0);
		WANT(modify(qp, IBV_QPS_INIT, types[i].init), EINVAL);
		WANT(modify(qp, IBV_QPS_ERR, 0), 0);
		WANT(modify(qp, IBV_QPS_RTS, types[i].rts), EINVAL);
		WANT(modify(qp, IBV_QPS_RESET, 0), 0);
		WANT(ibv_destroy_qp(qp), 0);
	}
	rig_down(&r);
}
