/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts the completions of two queue pairs of its own into words that a running instance
 * has reserved:
 *
 *     own-queue-pair MIRROR NAME DEVICE COUNT [compressed]
 *
 * MIRROR is the path of the mirror, and NAME the reserved words (flowtally queue-pairs reserve).
 * Each queue pair writes COUNT times to the other one by RDMA; 0: without end.
 */
#include "pairs.h"

#include <inttypes.h>
#include <time.h>

static struct ibv_context *open_device(const char *name) {
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *device = NULL;
	errno = ENODEV;
	for (struct ibv_device **d = list; d != NULL && *d != NULL && device == NULL; d++)
		if (strcmp(ibv_get_device_name(*d), name) == 0) device = ibv_open_device(*d);
	if (list != NULL) ibv_free_device_list(list);
	return device;
}

static int make(struct pairs *p, int compressed) {
	if ((p->pd = ibv_alloc_pd(p->device)) == NULL) return failed("allocating a protection domain");
	if ((p->memory = aligned_alloc(SIZE, SIZE)) == NULL) return failed("allocating memory");
	if ((p->mr = ibv_reg_mr(p->pd, p->memory, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)) == NULL) return failed("registering memory");
	p->self.is_global = 1;
	p->self.port_num = PORT;
	p->self.grh.sgid_index = ROUTE;
	p->self.grh.hop_limit = 64;
	if (ibv_query_gid(p->device, PORT, ROUTE, &p->self.grh.dgid) != 0) return failed("querying the GID");
	return make_queues(p, compressed);
}

static void destroy(struct pairs *p) {
	for (int i = 0; i < 2; i++)
		if (p->qps[i] != NULL) (void)ibv_destroy_qp(p->qps[i]);
	destroy_counter(p);
	if (p->cq != NULL) (void)ibv_destroy_cq(p->cq);
	if (p->mr != NULL) (void)ibv_dereg_mr(p->mr);
	if (p->pd != NULL) (void)ibv_dealloc_pd(p->pd);
	if (p->device != NULL) (void)ibv_close_device(p->device);
	free(p->memory);
}

/* Posts writes of each queue pair, and the next ones when all have completed. */
static int write_all(struct pairs *p, long count) {
	const struct timespec pause = {0, 1000};
	struct ibv_wc done[DEPTH];
	const int forever = count == 0;
	for (int left = 0, n = 0; forever || count > 0 || left > 0; left -= n) {
		if (left == 0) {
			const int some = forever || count > DEPTH / 2 ? DEPTH / 2 : (int)count;
			for (int i = 0; i < 2; i++, left += some)
				if (post_writes(p, i, some)) return -1;
			count -= forever ? 0 : some;
		}
		const int ready = count_completions(p, n);
		if (ready < 0) return -1;
		if ((n = ibv_poll_cq(p->cq, ready < DEPTH ? ready : DEPTH, done)) < 0) return failed("polling the completion queue");
		for (int i = 0; i < n; i++)
			if (done[i].status != IBV_WC_SUCCESS) return fprintf(stderr, "a write completed with status %d\n", (int)done[i].status), -1;
		if (n == 0) (void)nanosleep(&pause, NULL);
	}
	return 0;
}

int main(int argc, char **argv) {
	struct pairs p;
	uint64_t most;
	memset(&p, 0, sizeof p);
	if (argc != 5 && (argc != 6 || strcmp(argv[5], "compressed") != 0))
		return fprintf(stderr, "usage: own-queue-pair MIRROR NAME DEVICE COUNT [compressed]\n"), 2;
	if ((p.device = open_device(argv[3])) == NULL) return failed(argv[3]), 1;
	if (most_of_a_word(&p, &most)) return destroy(&p), 1;
	int err = ft_words_take(&p.words, argv[1], argv[2], most, NULL);
	if (err) return fprintf(stderr, "%s: %s\n", argv[2], ft_strerror(err)), destroy(&p), 1;
	err = make(&p, argc == 6) || write_all(&p, strtol(argv[4], NULL, 10));
	destroy(&p);
	printf("%" PRIu64 " completions, %" PRIu64 " errors\n", p.words.words[0], p.words.words[1]);
	ft_words_close(&p.words);
	return err ? 1 : 0;
}
