// SPDX-License-Identifier: Apache-2.0
// comp_cntr.c: completion counters as objects, which the distribution's library does not
// have yet; and privileges.
#include "comp_cntr.h"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

void case_comp_cntr(void)
{
	VERB(int, _ibv_query_comp_cntr_caps, struct ibv_context *, struct comp_cntr_caps *, size_t);
	VERB(struct comp_cntr *, ibv_create_comp_cntr, struct ibv_context *, uint32_t *);
	VERB(int, ibv_destroy_comp_cntr, struct comp_cntr *);
	VERB(int, ibv_set_comp_cntr, struct comp_cntr *, uint64_t);
	VERB(int, ibv_set_err_comp_cntr, struct comp_cntr *, uint64_t);
	VERB(int, ibv_inc_comp_cntr, struct comp_cntr *, uint64_t);
	VERB(int, ibv_inc_err_comp_cntr, struct comp_cntr *, uint64_t);
	VERB(int, ibv_read_comp_cntr, struct comp_cntr *, uint64_t *);
	VERB(int, ibv_read_err_comp_cntr, struct comp_cntr *, uint64_t *);
	VERB(int, ibv_qp_attach_comp_cntr, struct ibv_qp *, struct comp_cntr *, uint32_t *);
	struct comp_cntr_caps caps;
	uint64_t v;
	struct rig r;
	rig_up(&r);
	memset(&caps, 0xff, sizeof(caps));
	WANT(_ibv_query_comp_cntr_caps(r.context, &caps, sizeof(caps) - 1), EINVAL);
	WANT(caps.max_counters, 0); /* the buffer is zeroed first */
	WANT(_ibv_query_comp_cntr_caps(r.context, &caps, sizeof(caps)), 0);
	uint32_t bytes[3] = {0, 1, 0}, flags[3] = {0, 0, 1}, extra[3] = {1, 0, 0}, wrs[3] = {0, 0, 0};
	WANT_NULL(ibv_create_comp_cntr(r.context, bytes), EOPNOTSUPP);
	WANT_NULL(ibv_create_comp_cntr(r.context, flags), EOPNOTSUPP);
	WANT_NULL(ibv_create_comp_cntr(r.context, extra), EOPNOTSUPP);
	struct comp_cntr *a = ibv_create_comp_cntr(r.context, wrs), *b = ibv_create_comp_cntr(r.context, wrs);
	NEED(a && b);
	WANT(ibv_set_comp_cntr(a, caps.max_value), 0);
	WANT(ibv_inc_comp_cntr(a, 1), 0); /* wraps past max_value, which is not 2^64 - 1 */
	WANT(ibv_read_comp_cntr(a, &v), 0);
	WANT(v, 0);
	WANT(ibv_set_comp_cntr(a, caps.max_value + 1), 0); /* passed to the device, which drops the bit */
	WANT(ibv_set_err_comp_cntr(a, 5), 0);
	WANT(ibv_inc_err_comp_cntr(a, 2), 0);
	WANT(ibv_read_err_comp_cntr(a, &v), 0);
	WANT(v, 7);
	WANT(ibv_read_comp_cntr(a, &v), 0);
	WANT(v, 0);

	uint32_t none[2] = {0, 0}, send[2] = {0, 1}, both[2] = {0, 3}, recv[2] = {0, 2}, unknown[2] = {0, 64}, mask[2] = {1, 1};
	WANT(ibv_qp_attach_comp_cntr(r.qp, a, none), EINVAL);
	WANT(ibv_qp_attach_comp_cntr(r.qp, a, unknown), EINVAL); /* dropped: no operation is left */
	WANT(ibv_qp_attach_comp_cntr(r.qp, a, mask), 0);         /* libibverbs does not look at comp_mask */
	WANT(ibv_qp_attach_comp_cntr(r.qp, a, send), EBUSY);
	WANT(ibv_qp_attach_comp_cntr(r.qp, b, both), EBUSY); /* an operation has one counter */
	WANT(ibv_destroy_comp_cntr(a), EBUSY);
	struct ibv_qp_attr q = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	WANT(ibv_modify_qp(r.qp, &q, IBV_QP_STATE | IBV_QP_PORT), 0);
	WANT(ibv_qp_attach_comp_cntr(r.qp, b, recv), 0);
	q.qp_state = IBV_QPS_RTR;
	WANT(ibv_modify_qp(r.qp, &q, IBV_QP_STATE), 0);
	WANT(ibv_qp_attach_comp_cntr(r.qp, b, (uint32_t[]){0, 4}), EINVAL); /* neither RESET nor INIT */
	/* There is no detach: the QP's end is it. */
	WANT(ibv_destroy_qp(r.qp), 0);
	WANT(ibv_destroy_comp_cntr(a), 0);
	WANT(ibv_destroy_comp_cntr(b), 0);
	struct ibv_qp_init_attr init = qp_attr(r.cq, IBV_QPT_RAW_PACKET);
	NEED(r.qp = ibv_create_qp(r.pd, &init));
	rig_down(&r);
}

/* drop takes CAP_NET_RAW from this thread. */
static void drop(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];
	NEED(!syscall(SYS_capget, &head, data));
	data[0].effective &= ~(1U << CAP_NET_RAW);
	NEED(!syscall(SYS_capset, &head, data));
}

void case_unprivileged(void)
{
	struct rig r;
	struct blob b;
	rig_up(&r);
	drop();
	struct ibv_qp_init_attr a = qp_attr(r.cq, IBV_QPT_RAW_PACKET);
	WANT_NULL(ibv_create_qp(r.pd, &a), EPERM);
	a.qp_type = IBV_QPT_UD;
	struct ibv_qp *ud = ibv_create_qp(r.pd, &a); /* needs no privilege; its flows do */
	NEED(ud);
	blob_init(&b, 0, 0);
	WANT_NULL(blob_flow(&b, ud), EPERM);
	WANT_NULL(blob_flow(&b, r.qp), EPERM);
	struct ibv_counters_init_attr init = {0};
	struct ibv_counters *counters = ibv_create_counters(r.context, &init);
	NEED(counters);
	blob_count(&b, counters);
	struct ibv_counter_attach_attr point = {.counter_desc = IBV_COUNTER_PACKETS};
	WANT(ibv_attach_counters_point_flow(counters, &point, NULL), 0);
	WANT_NULL(blob_flow(&b, r.qp), EPERM);
	blob_count(&b, counters); /* libmlx5 looks at the specs before the kernel at the privilege */
	WANT_NULL(blob_flow(&b, r.qp), EINVAL);
	WANT(ibv_destroy_counters(counters), 0);
	WANT(ibv_destroy_qp(ud), 0);
	rig_down(&r);
}
