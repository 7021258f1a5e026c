// SPDX-License-Identifier: Apache-2.0
// counted.c: the operations that completion counters count, and the counters' memory
// (ibv_qp_attach_comp_cntr(3), efadv_create_comp_cntr(3)).
#include "comp_cntr.h"
#include "ends.h"

#include <sys/mman.h>
#include <unistd.h>

void *shim(void)
{
	void *library = dlopen(getenv("SELFTEST_SHIM"), RTLD_NOW);
	if (!library)
		printf("%s\n", dlerror());
	NEED(library);
	return library;
}

/* One counter per operation on each of two ends that are connected. */
struct counted {
	struct end a, b;
	struct comp_cntr *of_a[6], *of_b[6];
};

static void counted_up(struct counted *c)
{
	VERB(struct comp_cntr *, ibv_create_comp_cntr, struct ibv_context *, uint32_t *);
	VERB(int, ibv_qp_attach_comp_cntr, struct ibv_qp *, struct comp_cntr *, uint32_t *);
	uint32_t wrs[3] = {0, 0, 0};
	end_make(&c->a, "mlx5_0", &usual);
	end_make(&c->b, "mlx5_1", &usual);
	for (int i = 0; i < 6; i++) {
		NEED(c->of_a[i] = ibv_create_comp_cntr(c->a.context, wrs));
		NEED(c->of_b[i] = ibv_create_comp_cntr(c->b.context, wrs));
		WANT(ibv_qp_attach_comp_cntr(c->a.qp, c->of_a[i], (uint32_t[]){0, 1 << i}), 0);
		WANT(ibv_qp_attach_comp_cntr(c->b.qp, c->of_b[i], (uint32_t[]){0, 1 << i}), 0);
	}
	end_connect(&c->a, &c->b, &usual);
}

static void counted_down(struct counted *c)
{
	VERB(int, ibv_destroy_comp_cntr, struct comp_cntr *);
	for (int i = 0; i < 6; i++)
		WANT(ibv_destroy_comp_cntr(c->of_a[i]), EBUSY);
	WANT(ibv_destroy_qp(c->a.qp), 0); /* which detaches them */
	WANT(ibv_destroy_qp(c->b.qp), 0);
	for (int i = 0; i < 6; i++) {
		WANT(ibv_destroy_comp_cntr(c->of_a[i]), 0);
		WANT(ibv_destroy_comp_cntr(c->of_b[i]), 0);
	}
	struct ibv_qp_init_attr init = qp_attr(c->a.send_cq, IBV_QPT_RC);
	NEED(c->a.qp = ibv_create_qp(c->a.pd, &init));
	init = qp_attr(c->b.send_cq, IBV_QPT_RC);
	NEED(c->b.qp = ibv_create_qp(c->b.pd, &init));
	ends_down(&c->a, &c->b);
}

/* Both values of six counters, in the order of their bits. */
static void want_counts(const char *where, struct comp_cntr **c, const uint64_t *ok, const uint64_t *bad)
{
	VERB(int, ibv_read_comp_cntr, struct comp_cntr *, uint64_t *);
	VERB(int, ibv_read_err_comp_cntr, struct comp_cntr *, uint64_t *);
	for (int i = 0; i < 6; i++) {
		uint64_t v = 99, e = 99;
		int before = failures;
		WANT_SOON((ibv_read_comp_cntr(c[i], &v), v), ok[i]);
		WANT_SOON((ibv_read_err_comp_cntr(c[i], &e), e), bad[i]);
		if (failures != before)
			printf("... %s, of operation %d\n", where, i);
	}
}

#define WANT_COUNTS(c, ...)                                                                                            \
	do {                                                                                                           \
		const uint64_t want_[4][6] = __VA_ARGS__;                                                              \
		char where_[64];                                                                                       \
		snprintf(where_, sizeof(where_), "line %d, near", __LINE__);                                           \
		want_counts(where_, (c)->of_a, want_[0], want_[1]);                                                    \
		snprintf(where_, sizeof(where_), "line %d, far", __LINE__);                                            \
		want_counts(where_, (c)->of_b, want_[2], want_[3]);                                                    \
	} while (0)

/* So many completions come, and no more. */
static void want_completions(struct ibv_cq *cq, int n)
{
	struct ibv_wc wc;
	for (; n; n--)
		WANT_SOON(ibv_poll_cq(cq, 1, &wc), 1);
	WANT(ibv_poll_cq(cq, 1, &wc), 0);
}

/* Columns: send, recv, read, remote read, write, remote write. */
void case_comp_cntr_counts(void)
{
	struct counted c;
	counted_up(&c);
	for (int i = 0; i < 9; i++)
		WANT(post_recv(&c.b, i, 0, 8), 0);
	WANT_COUNTS(&c, {{0}, {0}, {0}, {0}});
	for (int i = 0; i < 2; i++) /* signaled or not */
		WANT(post(&c.a, IBV_WR_SEND, 1, i ? IBV_SEND_SIGNALED : 0, 0, 8, NULL, 0), 0);
	WANT(post(&c.a, IBV_WR_SEND_WITH_IMM, 1, 0, 0, 8, NULL, 0), 0);
	WANT_COUNTS(&c, {{3}, {0}, {0, 3}, {0}});
	WANT(post(&c.a, IBV_WR_RDMA_READ, 1, 0, 0, 8, &c.b, 0), 0);
	WANT(post(&c.a, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, &c.b, 0), 0);
	WANT(post(&c.a, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, &c.b, 0), 0);
	WANT(post(&c.b, IBV_WR_RDMA_READ, 1, 0, 0, 8, &c.a, 0), 0);
	WANT_COUNTS(&c, {{3, 0, 1, 1, 2}, {0}, {0, 3, 1, 1, 0, 2}, {0}});
	/* With immediate data it is a receive, too. */
	WANT(post(&c.a, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 0, 8, &c.b, 0), 0);
	WANT_COUNTS(&c, {{3, 0, 1, 1, 3}, {0}, {0, 4, 1, 1, 0, 3}, {0}});
	/* The queue still has every completion that it would have without: one signaled send,
	 * four receives. */
	want_completions(c.a.send_cq, 1);
	want_completions(c.b.recv_cq, 4);
	/* An error: at the far end the remote operation has no count for it. All outstanding requests
	 * are flushed and counted: here one write, there five receives. */
	WANT(post(&c.a, IBV_WR_RDMA_READ, 1, 0, 0, 8, &c.b, BUFFER), 0);
	WANT(post(&c.a, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, &c.b, 0), 0);
	WANT_COUNTS(&c, {{3, 0, 1, 1, 3}, {0, 0, 1, 0, 1}, {0, 4, 1, 1, 0, 3}, {0, 5}});
	want_completions(c.a.send_cq, 2);
	want_completions(c.b.recv_cq, 5);
	counted_down(&c);
}

/* When a device goes, its counters keep their last values. Closing the context frees them,
 * whatever they are attached to. */
void case_comp_cntr_gone(void)
{
	VERB(int, ibv_destroy_comp_cntr, struct comp_cntr *);
	VERB(int, ibv_read_comp_cntr, struct comp_cntr *, uint64_t *);
	efadv_create_comp_cntr_fn *create = (efadv_create_comp_cntr_fn *)dlvsym(shim(), "efadv_create_comp_cntr", "EFA_1.7");
	VERB(int, ibv_qp_attach_comp_cntr, struct ibv_qp *, struct comp_cntr *, uint32_t *);
	uint64_t word = 0, v;
	struct external x = {.flags = 1, .comp = {.ptr = (uint8_t *)&word}};
	struct end a, b;
	end_make(&a, "mlx5_0", &usual);
	end_make(&b, "mlx5_1", &usual);
	struct comp_cntr *c = create(b.context, (uint32_t[]){0, 0, 0}, &x, sizeof(x));
	NEED(c);
	WANT(ibv_qp_attach_comp_cntr(b.qp, c, (uint32_t[]){0, REMOTE_WRITE}), 0);
	end_connect(&a, &b, &usual);
	WANT(post(&a, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, &b, 0), 0);
	WANT_SOON(__atomic_load_n(&word, __ATOMIC_ACQUIRE), 1);
	tell("fatal mlx5_1\n");
	WANT(next_event(b.context), IBV_EVENT_DEVICE_FATAL);
	WANT(post(&a, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, &b, 0), 0);
	WANT(word, 1);
	WANT(ibv_read_comp_cntr(c, &v), 0); /* libefa loads the word */
	WANT(v, 1);
	WANT(ibv_destroy_comp_cntr(c), EBUSY); /* of its queue pair */
	WANT(ibv_close_device(b.context), 0);
	end_close(&a);
}

/* COMP_CNTR_MAX=9,mlx5_1/5 COMP_CNTR_OPS=send,recv,mlx5_1/rdma_write,mlx5_1/0x80000000: the last
 * is an operation that no release has yet. It can be attached and never happens. */
void case_comp_cntr_limits(void)
{
	const uint32_t LATER = UINT32_C(1) << 31;
	VERB(int, _ibv_query_comp_cntr_caps, struct ibv_context *, struct comp_cntr_caps *, size_t);
	VERB(struct comp_cntr *, ibv_create_comp_cntr, struct ibv_context *, uint32_t *);
	VERB(int, ibv_destroy_comp_cntr, struct comp_cntr *);
	VERB(int, ibv_qp_attach_comp_cntr, struct ibv_qp *, struct comp_cntr *, uint32_t *);
	VERB(int, ibv_read_comp_cntr, struct comp_cntr *, uint64_t *);
	VERB(int, ibv_inc_comp_cntr, struct comp_cntr *, uint64_t);
	VERB(int, ibv_set_comp_cntr, struct comp_cntr *, uint64_t);
	uint32_t wrs[3] = {0, 0, 0};
	struct comp_cntr_caps caps;
	struct end a, b, third;
	struct ibv_wc wc;
	uint64_t v;
	end_make(&a, "mlx5_0", &usual);
	end_make(&b, "mlx5_1", &usual);
	WANT(_ibv_query_comp_cntr_caps(a.context, &caps, sizeof(caps)), 0);
	WANT(caps.max_value, 9);
	WANT(caps.supported_qp_attach_ops, SEND | RECV);
	WANT(_ibv_query_comp_cntr_caps(b.context, &caps, sizeof(caps)), 0);
	WANT(caps.max_value, 5);
	WANT(caps.supported_qp_attach_ops, SEND | RECV | WRITE | LATER);
	struct comp_cntr *c = ibv_create_comp_cntr(a.context, wrs), *d = ibv_create_comp_cntr(b.context, wrs);
	NEED(c && d);
	WANT(ibv_qp_attach_comp_cntr(a.qp, c, (uint32_t[]){0, SEND | WRITE}), ENOTSUP);
	WANT(ibv_qp_attach_comp_cntr(b.qp, d, (uint32_t[]){0, SEND | WRITE | LATER}), 0);
	WANT(ibv_qp_attach_comp_cntr(a.qp, c, (uint32_t[]){0, SEND}), 0);
	end_connect(&a, &b, &usual);
	/* 12 writes and the device's own 2 of a wrap at 5: 0 1 2 3 4 5 0 1 ... */
	for (int i = 0; i < 14; i++) {
		WANT(post(&b, IBV_WR_RDMA_WRITE, i, IBV_SEND_SIGNALED, 0, 8, &a, 0), 0);
		WANT_WC(b.send_cq, i, IBV_WC_SUCCESS);
		WANT(ibv_read_comp_cntr(d, &v), 0);
		WANT(v, (i + 1) % 6); /* an end is counted before it completes */
	}
	WANT(ibv_set_comp_cntr(d, 6), 0); /* passed to the device, which goes on at 0 past 5 */
	WANT(ibv_read_comp_cntr(d, &v), 0);
	WANT(v, 0);
	WANT(ibv_set_comp_cntr(d, 4), 0);
	WANT(ibv_inc_comp_cntr(d, 5), 0);
	WANT(ibv_read_comp_cntr(d, &v), 0);
	WANT(v, 3);

	/* One counter of several queue pairs, of one device's context, is their sum. */
	struct ibv_qp_init_attr init = qp_attr(a.send_cq, IBV_QPT_RC);
	third = a;
	NEED(third.qp = ibv_create_qp(a.pd, &init));
	WANT(ibv_qp_attach_comp_cntr(third.qp, c, (uint32_t[]){0, SEND}), 0);
	end_connect(&third, &third, &usual);
	for (int i = 0; i < 2; i++) {
		WANT(post_recv(i ? &third : &b, 1, 0, 8), 0);
		WANT(post(i ? &third : &a, IBV_WR_SEND, 1, 0, 0, 8, NULL, 0), 0);
	}
	WANT_SOON((ibv_read_comp_cntr(c, &v), v), 2);
	WANT(ibv_destroy_qp(third.qp), 0);
	WANT(ibv_destroy_comp_cntr(c), EBUSY); /* of the other */
	WANT(ibv_destroy_qp(a.qp), 0);
	WANT(ibv_destroy_comp_cntr(c), 0);
	WANT(ibv_destroy_qp(b.qp), 0);
	WANT(ibv_destroy_comp_cntr(d), 0);
	NEED(a.qp = ibv_create_qp(a.pd, &init));
	init = qp_attr(b.send_cq, IBV_QPT_RC);
	NEED(b.qp = ibv_create_qp(b.pd, &init));

	/* As many as the device has, over its contexts, and no more. */
	struct comp_cntr **many = calloc(caps.max_counters, sizeof(*many));
	struct ibv_context *again = open_device("mlx5_0");
	for (uint32_t i = 0; i < caps.max_counters; i++)
		NEED(many[i] = ibv_create_comp_cntr(i % 2 ? a.context : again, wrs));
	WANT_NULL(ibv_create_comp_cntr(again, wrs), ENOMEM);
	for (uint32_t i = 0; i < caps.max_counters; i++)
		WANT(ibv_destroy_comp_cntr(many[i]), 0);
	free(many);
	WANT(ibv_close_device(again), 0);
	ends_down(&a, &b);
}

/* The device writes the words of the application, at each update. WITHOUT=mlx5_1/efadv */
void case_comp_cntr_external(void)
{
	VERB(struct comp_cntr *, ibv_create_comp_cntr, struct ibv_context *, uint32_t *);
	VERB(int, ibv_destroy_comp_cntr, struct comp_cntr *);
	VERB(int, ibv_qp_attach_comp_cntr, struct ibv_qp *, struct comp_cntr *, uint32_t *);
	VERB(int, ibv_read_comp_cntr, struct comp_cntr *, uint64_t *);
	VERB(int, ibv_read_err_comp_cntr, struct comp_cntr *, uint64_t *);
	VERB(int, ibv_set_err_comp_cntr, struct comp_cntr *, uint64_t);
	efadv_create_comp_cntr_fn *create = (efadv_create_comp_cntr_fn *)dlvsym(shim(), "efadv_create_comp_cntr", "EFA_1.7");
	NEED(create);
	uint32_t wrs[3] = {0, 0, 0}, bytes[3] = {0, 1, 0};
	uint64_t *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	NEED(page != MAP_FAILED);
	mprotect(page + 512, 4096, PROT_READ);
	struct external x = {.flags = 3, .comp = {.ptr = (uint8_t *)page}, .err = {.ptr = (uint8_t *)(page + 1)}}, y;
	struct end a, b;
	end_make(&a, "mlx5_0", &usual);
	end_make(&b, "mlx5_1", &usual);
#define REFUSED(change, errno_)                                                                                        \
	do {                                                                                                           \
		y = x;                                                                                                 \
		change;                                                                                                \
		WANT_NULL(create(a.context, wrs, &y, sizeof(y)), errno_);                                              \
	} while (0)
	WANT_NULL(create(b.context, wrs, &x, sizeof(x)), EOPNOTSUPP);
	WANT_NULL(create(a.context, bytes, &x, sizeof(x)), EOPNOTSUPP);
	WANT_NULL(create(a.context, wrs, &x, sizeof(x) - 1), EINVAL);
	REFUSED(y.flags = 4, EOPNOTSUPP);
	REFUSED(y.comp_mask = 1, EOPNOTSUPP);
	REFUSED(y.err.type = 2, EOPNOTSUPP);
	int fd = memfd_create("dmabuf", 0); /* stands in for a DMA-BUF */
	NEED(fd >= 0 && !ftruncate(fd, 8192));
	struct location buffer = {.type = 1, .fd = fd, .offset = 4096 + 8};
	REFUSED(y.comp = buffer; y.comp.fd = -1, EBADF);
	REFUSED(y.comp = buffer; y.comp.fd = 0, EINVAL); /* no DMA-BUF */
	REFUSED(y.comp = buffer; y.comp.offset += 4, EINVAL);
	REFUSED(y.comp = buffer; y.comp.offset = 8192, EINVAL);
	REFUSED(y.comp.ptr += 4, EINVAL);
	REFUSED(y.err.ptr = NULL, EFAULT);
	REFUSED(y.comp.ptr = (uint8_t *)(page + 512), EFAULT); /* read-only */
	struct {
		struct external x;
		uint64_t more;
	} longer = {.x = x, .more = 1};
	WANT_NULL(create(a.context, wrs, &longer.x, sizeof(longer)), EINVAL);
	longer.more = 0;

	page[0] = page[1] = 77;
	struct comp_cntr *c = create(a.context, wrs, &longer.x, sizeof(longer));
	NEED(c);
	WANT(page[0] == 77 && page[1] == 77, true); /* nothing has happened yet */
	y = (struct external){.flags = 1, .comp = {.ptr = (uint8_t *)(page + 2)}}; /* the other is the library's */
	struct comp_cntr *d = create(a.context, wrs, &y, sizeof(y));
	NEED(d);
	WANT(ibv_qp_attach_comp_cntr(a.qp, c, (uint32_t[]){0, WRITE | RECV}), 0);
	WANT(ibv_qp_attach_comp_cntr(a.qp, d, (uint32_t[]){0, READ}), 0);
	end_connect(&a, &b, &usual);
	for (int i = 0; i < 3; i++)
		WANT(post(&a, IBV_WR_RDMA_WRITE, i, 0, 0, 8, &b, 0), 0);
	WANT(post(&a, IBV_WR_RDMA_READ, 9, 0, 0, 8, &b, 0), 0);
	uint64_t v;
	WANT_SOON(__atomic_load_n(&page[0], __ATOMIC_ACQUIRE), 3);
	WANT(page[1], 77);
	WANT_SOON(__atomic_load_n(&page[2], __ATOMIC_ACQUIRE), 1);
	WANT(ibv_set_err_comp_cntr(c, 5), 0);
	WANT(page[1], 5);
	y = (struct external){.flags = 2, .err = buffer};
	struct comp_cntr *shared = create(a.context, wrs, &y, sizeof(y));
	NEED(shared);
	WANT(ibv_set_err_comp_cntr(shared, 41), 0);
	WANT(pread(fd, &v, sizeof(v), buffer.offset), sizeof(v));
	WANT(v, 41);
	WANT(ibv_destroy_comp_cntr(shared), 0);
	close(fd);
	WANT(move(&a, IBV_QPS_ERR), 0);
	WANT(post_recv(&a, 1, 0, 8), 0);
	WANT_SOON(__atomic_load_n(&page[1], __ATOMIC_ACQUIRE), 6);
	page[0] = 1000; /* reads return the word; the device counts in its own value */
	WANT(ibv_read_comp_cntr(c, &v), 0);
	WANT(v, 1000);
	WANT(ibv_read_err_comp_cntr(d, &v), 0);
	WANT(v, 0);
	WANT(move(&a, IBV_QPS_RESET), 0);
	WANT(move(&b, IBV_QPS_RESET), 0);
	end_connect(&a, &b, &usual); /* a counter stays attached over a reset */
	WANT(post(&a, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, &b, 0), 0);
	WANT_SOON(__atomic_load_n(&page[0], __ATOMIC_ACQUIRE), 4);
	WANT(ibv_destroy_qp(a.qp), 0);
	WANT(ibv_destroy_comp_cntr(c), 0);
	WANT(ibv_destroy_comp_cntr(d), 0);
	WANT(page[0], 4);
	struct ibv_qp_init_attr init = qp_attr(a.send_cq, IBV_QPT_RC);
	NEED(a.qp = ibv_create_qp(a.pd, &init));
	ends_down(&a, &b);
	munmap(page, 8192);
}
