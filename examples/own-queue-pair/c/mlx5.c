/* SPDX-License-Identifier: Apache-2.0
 *
 * Queue pairs of an mlx5 device: type RC. The program counts the ring of its completion queue. */
#include "pairs.h"

#include "flowtally_ring.h"

#include <infiniband/mlx5dv.h>

static ft_ring ring;

/* Brings a queue pair to RTS, connected to another one of this device. */
static int connect_pair(struct pairs *p, struct ibv_qp *qp, uint32_t to) {
	struct ibv_port_attr port;
	struct ibv_qp_attr a;
	memset(&a, 0, sizeof a);
	a.qp_state = IBV_QPS_INIT;
	a.port_num = PORT;
	a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	if ((errno = ibv_query_port(p->device, PORT, &port)) != 0) return failed("querying the port");
	errno = ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
	if (errno != 0) return failed("modifying a queue pair to INIT");
	memset(&a, 0, sizeof a);
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = port.active_mtu;
	a.dest_qp_num = to;
	a.rq_psn = 1;
	a.max_dest_rd_atomic = 1;
	a.min_rnr_timer = 12;
	a.ah_attr = p->self;
	errno = ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (errno != 0) return failed("modifying a queue pair to RTR");
	memset(&a, 0, sizeof a);
	a.qp_state = IBV_QPS_RTS;
	a.sq_psn = 1;
	a.timeout = 14;
	a.retry_cnt = 7;
	a.rnr_retry = 7;
	a.max_rd_atomic = 1;
	errno = ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
	return errno != 0 ? failed("modifying a queue pair to RTS") : 0;
}

static struct ibv_cq *create_compressed(struct ibv_context *device) {
	struct ibv_cq_init_attr_ex a;
	struct mlx5dv_cq_init_attr m;
	memset(&a, 0, sizeof a);
	memset(&m, 0, sizeof m);
	a.cqe = ENTRIES - 1;
	m.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE;
	m.cqe_comp_res_format = MLX5DV_CQE_RES_FORMAT_HASH;
	struct ibv_cq_ex *cq = mlx5dv_create_cq(device, &a, &m);
	return cq == NULL ? NULL : ibv_cq_ex_to_cq(cq);
}

/* Describes the memory in which the device completes. */
static int open_ring(struct ibv_cq *cq, int compressed) {
	struct mlx5dv_cq memory;
	struct mlx5dv_obj o;
	memset(&memory, 0, sizeof memory);
	memset(&o, 0, sizeof o);
	o.cq.in = cq;
	o.cq.out = &memory;
	if ((errno = mlx5dv_init_obj(&o, MLX5DV_OBJ_CQ)) != 0) return failed("finding the ring of the completion queue");
	const int err = ft_ring_open(&ring, memory.buf, memory.cqe_cnt, memory.cqe_size, compressed ? MLX5DV_CQE_RES_FORMAT_HASH : 0);
	if (err) fprintf(stderr, "%s\n", ft_strerror(err));
	return err ? -1 : 0;
}

int make_queues(struct pairs *p, int compressed) {
	p->cq = compressed ? create_compressed(p->device) : ibv_create_cq(p->device, ENTRIES - 1, NULL, NULL, 0);
	if (p->cq == NULL) return failed("creating a completion queue");
	if (open_ring(p->cq, compressed)) return -1;
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_init_attr a;
		memset(&a, 0, sizeof a);
		a.qp_type = IBV_QPT_RC;
		a.send_cq = a.recv_cq = p->cq;
		a.cap.max_send_wr = DEPTH;
		a.cap.max_recv_wr = a.cap.max_send_sge = a.cap.max_recv_sge = 1;
		if ((p->qps[i] = ibv_create_qp(p->pd, &a)) == NULL) return failed("creating a queue pair");
	}
	return connect_pair(p, p->qps[0], p->qps[1]->qp_num) || connect_pair(p, p->qps[1], p->qps[0]->qp_num) ? -1 : 0;
}

int post_writes(struct pairs *p, int i, int n) {
	struct ibv_send_wr wr, *bad;
	struct ibv_sge from;
	memset(&from, 0, sizeof from);
	memset(&wr, 0, sizeof wr);
	from.addr = (uintptr_t)p->memory;
	from.length = LENGTH;
	from.lkey = p->mr->lkey;
	wr.sg_list = &from;
	wr.num_sge = 1;
	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.rdma.remote_addr = (uintptr_t)p->memory + TO;
	wr.wr.rdma.rkey = p->mr->rkey;
	for (; n > 0; n--)
		if ((errno = ibv_post_send(p->qps[i], &wr, &bad)) != 0) return failed("posting a write");
	return 0;
}

int most_of_a_word(struct pairs *p, uint64_t *most) {
	(void)p;
	*most = 0;
	return 0;
}

int count_completions(struct pairs *p, int polled) {
	const int err = ft_ring_count(&ring, polled, &p->words);
	if (err) return fprintf(stderr, "%s\n", ft_strerror(err)), -1;
	return (int)ft_ring_ready(&ring);
}

void destroy_counter(struct pairs *p) { (void)p; }
