/* SPDX-License-Identifier: Apache-2.0
 *
 * Queue pairs of an EFA device: type SRD. Both have one completion counter, which the device
 * writes into the words. It needs rdma-core 65. */
#include "pairs.h"

#include <infiniband/efadv.h>

enum { QKEY = 0x11111111 };

static struct ibv_comp_cntr *counter;
static struct ibv_ah *ah;

/* Makes a completion counter in the words. */
static int make_counter(struct pairs *p) {
	struct ibv_comp_cntr_init_attr a;
	struct efadv_comp_cntr_init_attr e;
	memset(&a, 0, sizeof a);
	memset(&e, 0, sizeof e);
	a.type = IBV_COMP_CNTR_TYPE_WRS;
	e.flags = EFADV_COMP_CNTR_INIT_WITH_COMP_EXTERNAL_MEM | EFADV_COMP_CNTR_INIT_WITH_ERR_EXTERNAL_MEM;
	e.comp_cntr_ext_mem.type = e.err_cntr_ext_mem.type = EFADV_MEMORY_LOCATION_VA;
	e.comp_cntr_ext_mem.ptr = (uint8_t *)&p->words.words[0];
	e.err_cntr_ext_mem.ptr = (uint8_t *)&p->words.words[1];
	counter = efadv_create_comp_cntr(p->device, &a, &e, sizeof e);
	return counter == NULL ? failed("creating a completion counter") : 0;
}

static int make_pair(struct pairs *p, int i) {
	struct ibv_qp_attach_comp_cntr_attr writes;
	struct ibv_qp_init_attr_ex a;
	struct efadv_qp_init_attr e;
	struct ibv_qp_attr to;
	memset(&writes, 0, sizeof writes);
	memset(&a, 0, sizeof a);
	memset(&e, 0, sizeof e);
	memset(&to, 0, sizeof to);
	a.qp_type = IBV_QPT_DRIVER;
	a.send_cq = a.recv_cq = p->cq;
	a.cap.max_send_wr = DEPTH;
	a.cap.max_recv_wr = a.cap.max_send_sge = a.cap.max_recv_sge = 1;
	a.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	a.pd = p->pd;
	a.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
	e.driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD;
	if ((p->qps[i] = efadv_create_qp_ex(p->device, &a, &e, sizeof e)) == NULL) return failed("creating a queue pair");
	writes.op_mask = IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE;
	if ((errno = ibv_qp_attach_comp_cntr(p->qps[i], counter, &writes)) != 0) return failed("attaching the completion counter");
	to.qp_state = IBV_QPS_INIT;
	to.port_num = PORT;
	to.qkey = QKEY;
	errno = ibv_modify_qp(p->qps[i], &to, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_QKEY);
	if (errno != 0) return failed("modifying a queue pair to INIT");
	to.qp_state = IBV_QPS_RTR;
	if ((errno = ibv_modify_qp(p->qps[i], &to, IBV_QP_STATE)) != 0) return failed("modifying a queue pair to RTR");
	to.qp_state = IBV_QPS_RTS;
	to.sq_psn = 1;
	errno = ibv_modify_qp(p->qps[i], &to, IBV_QP_STATE | IBV_QP_SQ_PSN);
	return errno != 0 ? failed("modifying a queue pair to RTS") : 0;
}

int most_of_a_word(struct pairs *p, uint64_t *most) {
	struct ibv_comp_cntr_caps caps;
	memset(&caps, 0, sizeof caps);
	if ((errno = ibv_query_comp_cntr_caps(p->device, &caps)) != 0) return failed("querying the limits of completion counters");
	*most = caps.max_value;
	return 0;
}

int make_queues(struct pairs *p, int compressed) {
	if (compressed) return fprintf(stderr, "an EFA device compresses no entries\n"), -1;
	if (make_counter(p)) return -1;
	if ((p->cq = ibv_create_cq(p->device, ENTRIES - 1, NULL, NULL, 0)) == NULL) return failed("creating a completion queue");
	if ((ah = ibv_create_ah(p->pd, &p->self)) == NULL) return failed("creating an address handle");
	return make_pair(p, 0) || make_pair(p, 1) ? -1 : 0;
}

int post_writes(struct pairs *p, int i, int n) {
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(p->qps[i]);
	ibv_wr_start(qp);
	for (; n > 0; n--) {
		qp->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_write(qp, p->mr->rkey, (uintptr_t)p->memory + TO);
		ibv_wr_set_sge(qp, p->mr->lkey, (uintptr_t)p->memory, LENGTH);
		ibv_wr_set_ud_addr(qp, ah, p->qps[1 - i]->qp_num, QKEY);
	}
	errno = ibv_wr_complete(qp);
	return errno != 0 ? failed("posting writes") : 0;
}

/* The device counts. */
int count_completions(struct pairs *p, int polled) {
	(void)p, (void)polled;
	return DEPTH;
}

void destroy_counter(struct pairs *p) {
	(void)p;
	if (ah != NULL) (void)ibv_destroy_ah(ah);
	if (counter != NULL) (void)ibv_destroy_comp_cntr(counter);
}
