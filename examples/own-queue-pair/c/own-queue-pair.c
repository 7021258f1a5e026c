/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts the completions of two queue pairs of its own into words that a running instance
 * has reserved:
 *
 *     own-queue-pair MIRROR NAME DEVICE COUNT
 *
 * MIRROR is the path of the mirror, and NAME the reserved words (flowtally queue-pairs reserve).
 * Each queue pair writes COUNT times to the other one by RDMA. The program counts the ring of
 * its completion queue, so DEVICE is an mlx5 device.
 */
#include "flowtally_words.h"

#include <inttypes.h>
#include <stdio.h>

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

enum { PORT = 1, DEPTH = 64, ENTRIES = 256, SIZE = 4096, ROUTE = 0 /* row of the GID table */ };

struct pairs {
	struct ibv_context *device;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qps[2];
	void *memory;
};

static int failed(const char *doing) {
	fprintf(stderr, "%s: %s\n", doing, strerror(errno));
	return -1;
}

static struct ibv_context *open_device(const char *name) {
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *device = NULL;
	errno = ENODEV;
	for (struct ibv_device **d = list; d != NULL && *d != NULL && device == NULL; d++)
		if (strcmp(ibv_get_device_name(*d), name) == 0) device = ibv_open_device(*d);
	if (list != NULL) ibv_free_device_list(list);
	return device;
}

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
	a.ah_attr.is_global = 1;
	a.ah_attr.port_num = PORT;
	a.ah_attr.grh.sgid_index = ROUTE;
	a.ah_attr.grh.hop_limit = 64;
	if (ibv_query_gid(p->device, PORT, ROUTE, &a.ah_attr.grh.dgid) != 0) return failed("querying the GID");
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

static int make(struct pairs *p, const char *device) {
	if ((p->device = open_device(device)) == NULL) return failed(device);
	if ((p->pd = ibv_alloc_pd(p->device)) == NULL) return failed("allocating a protection domain");
	if ((p->memory = aligned_alloc(SIZE, SIZE)) == NULL) return failed("allocating memory");
	if ((p->mr = ibv_reg_mr(p->pd, p->memory, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)) == NULL) return failed("registering memory");
	if ((p->cq = ibv_create_cq(p->device, ENTRIES, NULL, NULL, 0)) == NULL) return failed("creating a completion queue");
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

static void destroy(struct pairs *p) {
	for (int i = 0; i < 2; i++)
		if (p->qps[i] != NULL) (void)ibv_destroy_qp(p->qps[i]);
	if (p->cq != NULL) (void)ibv_destroy_cq(p->cq);
	if (p->mr != NULL) (void)ibv_dereg_mr(p->mr);
	if (p->pd != NULL) (void)ibv_dealloc_pd(p->pd);
	if (p->device != NULL) (void)ibv_close_device(p->device);
	free(p->memory);
}

/* Describes the memory in which the device completes. */
static int open_ring(ft_ring *ring, struct ibv_cq *cq) {
	struct mlx5dv_cq memory;
	struct mlx5dv_obj o;
	memset(&memory, 0, sizeof memory);
	memset(&o, 0, sizeof o);
	o.cq.in = cq;
	o.cq.out = &memory;
	if ((errno = mlx5dv_init_obj(&o, MLX5DV_OBJ_CQ)) != 0) return failed("finding the ring of the completion queue");
	const int err = ft_ring_open(ring, memory.buf, memory.cqe_cnt, memory.cqe_size);
	if (err) fprintf(stderr, "%s\n", ft_strerror(err));
	return err ? -1 : 0;
}

/* Posts a write of each queue pair, and the next ones when both have completed. */
static int write_all(struct pairs *p, long count, ft_ring *ring, ft_words *words) {
	struct ibv_sge from;
	struct ibv_send_wr wr, *bad;
	struct ibv_wc done[DEPTH];
	memset(&from, 0, sizeof from);
	memset(&wr, 0, sizeof wr);
	from.addr = (uintptr_t)p->memory;
	from.length = 64;
	from.lkey = p->mr->lkey;
	wr.sg_list = &from;
	wr.num_sge = 1;
	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.rdma.remote_addr = (uintptr_t)p->memory + 1024;
	wr.wr.rdma.rkey = p->mr->rkey;
	for (int left = 0; count > 0 || left > 0;) {
		if (left == 0) {
			for (int i = 0; i < 2; i++, left++)
				if ((errno = ibv_post_send(p->qps[i], &wr, &bad)) != 0) return failed("posting a write");
			count--;
		}
		const int n = ibv_poll_cq(p->cq, DEPTH, done);
		if (n < 0) return failed("polling the completion queue");
		const int err = ft_ring_count(ring, n, words);
		if (err) return fprintf(stderr, "%s\n", ft_strerror(err)), -1;
		for (int i = 0; i < n; i++)
			if (done[i].status != IBV_WC_SUCCESS) return fprintf(stderr, "a write completed with status %d\n", (int)done[i].status), -1;
		left -= n;
	}
	return 0;
}

int main(int argc, char **argv) {
	ft_words words;
	ft_ring ring;
	struct pairs p;
	memset(&p, 0, sizeof p);
	if (argc != 5) return fprintf(stderr, "usage: own-queue-pair MIRROR NAME DEVICE COUNT\n"), 2;
	int err = ft_words_take(&words, argv[1], argv[2], 0, NULL);
	if (err) return fprintf(stderr, "%s: %s\n", argv[2], ft_strerror(err)), 1;
	err = make(&p, argv[3]) || open_ring(&ring, p.cq) || write_all(&p, strtol(argv[4], NULL, 10), &ring, &words);
	destroy(&p);
	printf("%" PRIu64 " completions, %" PRIu64 " errors\n", words.words[0], words.words[1]);
	ft_words_close(&words);
	return err ? 1 : 0;
}
