// SPDX-License-Identifier: Apache-2.0
// random.c: two connected queue pairs execute the operations of a seed, beside a model that knows
// only this: work ends in its order, errors always with a completion, successes with one if the
// request was signaled; slots are free when that was polled; every end is counted, once.
#include "comp_cntr.h"
#include "ends.h"

enum { STEPS = 20000, IDS = 1 << 16 };

/* A queue by the numbers of its posted requests: polling has shown that the requests before next
 * have ended. */
struct model {
	unsigned posted, next;
	uint8_t opcode[IDS];
	bool signaled[IDS];
	uint64_t ok, errors;
};

struct side {
	struct end end;
	struct model sends, receives;
	uint64_t remote_reads, remote_writes; /* of the other side, that it knows have gone well */
	struct comp_cntr *sent, *received, *read_by, *written_by;
};

static uint64_t seed;

static unsigned draw(unsigned n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (seed >> 33) % n;
}

static void succeeded(struct side *s, struct model *m, unsigned id)
{
	m->ok++;
	s->remote_reads += m == &s->sends && m->opcode[id] == IBV_WR_RDMA_READ;
	s->remote_writes += m == &s->sends && (m->opcode[id] == IBV_WR_RDMA_WRITE || m->opcode[id] == IBV_WR_RDMA_WRITE_WITH_IMM);
}

/* Takes completion id: the skipped requests have succeeded unsignaled. */
static void ended(struct side *s, struct model *m, const struct ibv_wc *wc)
{
	WANT(wc->wr_id >= m->next && wc->wr_id < m->posted, true);
	for (; m->next < wc->wr_id; m->next++) {
		WANT(m->signaled[m->next], false);
		succeeded(s, m, m->next);
	}
	if (wc->status == IBV_WC_SUCCESS) {
		WANT(m->signaled[m->next], true);
		succeeded(s, m, m->next);
	} else {
		m->errors++;
	}
	m->next++;
}

static void poll_some(struct side *s, unsigned n)
{
	struct ibv_wc wc;
	while (n-- && ibv_poll_cq(s->end.send_cq, 1, &wc) == 1)
		ended(s, &s->sends, &wc);
}

static void poll_received(struct side *s, unsigned n)
{
	struct ibv_wc wc;
	while (n-- && ibv_poll_cq(s->end.recv_cq, 1, &wc) == 1)
		ended(s, &s->receives, &wc);
}

static void send_one(struct side *s, struct side *to)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ};
	struct model *m = &s->sends;
	enum ibv_wr_opcode opcode = opcodes[draw(5)];
	bool signaled = draw(3) > 0, wrong = !draw(60);
	if (m->posted - m->next == DEPTH)
		return;
	m->opcode[m->posted] = opcode;
	m->signaled[m->posted] = signaled;
	/* One piece or three: they take one block in the queue or two. */
	struct ibv_sge sge[3] = {sge_of(&s->end, draw(100), draw(1000) + 1), sge_of(&s->end, 0, 1), sge_of(&s->end, 1100, draw(900))};
	struct ibv_send_wr wr = {.wr_id = m->posted, .sg_list = sge, .num_sge = 1 + 2 * draw(2), .opcode = opcode}, *bad;
	wr.send_flags = signaled ? IBV_SEND_SIGNALED : 0;
	wr.wr.rdma.remote_addr = (uintptr_t)to->end.buffer + (wrong ? BUFFER : draw(1000));
	wr.wr.rdma.rkey = to->end.mr->rkey;
	WANT(ibv_post_send(s->end.qp, &wr, &bad), 0);
	m->posted++;
}

static void receive_one(struct side *s)
{
	struct model *m = &s->receives;
	if (m->posted - m->next == DEPTH)
		return;
	m->signaled[m->posted] = true;
	WANT(post_recv(&s->end, m->posted, 2000, draw(40) ? 2000 : 1000), 0);
	m->posted++;
}

static void want_count(struct comp_cntr *c, uint64_t ok, uint64_t errors)
{
	VERB(int, ibv_read_comp_cntr, struct comp_cntr *, uint64_t *);
	VERB(int, ibv_read_err_comp_cntr, struct comp_cntr *, uint64_t *);
	uint64_t v;
	WANT(ibv_read_comp_cntr(c, &v), 0);
	WANT(v, ok);
	WANT(ibv_read_err_comp_cntr(c, &v), 0);
	WANT(v, errors);
}

/* The ends that the counter has seen. */
static uint64_t total(struct comp_cntr *c)
{
	VERB(int, ibv_read_comp_cntr, struct comp_cntr *, uint64_t *);
	VERB(int, ibv_read_err_comp_cntr, struct comp_cntr *, uint64_t *);
	uint64_t ok, errors;
	WANT(ibv_read_comp_cntr(c, &ok), 0);
	WANT(ibv_read_err_comp_cntr(c, &errors), 0);
	return ok + errors;
}

/* In ERR everything ends: a request without a completion then had no completion to come. */
static void drain(struct side *s)
{
	WANT(move(&s->end, IBV_QPS_ERR), 0);
	WANT_SOON(total(s->sent), s->sends.posted);
	WANT_SOON(total(s->received), s->receives.posted);
	poll_some(s, -1);
	poll_received(s, -1);
	for (; s->sends.next < s->sends.posted; s->sends.next++) {
		WANT(s->sends.signaled[s->sends.next], false);
		succeeded(s, &s->sends, s->sends.next);
	}
	WANT(s->receives.next, s->receives.posted);
	WANT(s->sends.ok + s->sends.errors, s->sends.posted);
}

static void make(struct side *s, const char *device)
{
	VERB(struct comp_cntr *, ibv_create_comp_cntr, struct ibv_context *, uint32_t *);
	VERB(int, ibv_qp_attach_comp_cntr, struct ibv_qp *, struct comp_cntr *, uint32_t *);
	uint32_t wrs[3] = {0, 0, 0};
	const struct {
		struct comp_cntr **c;
		uint32_t ops;
	} counters[] = {{&s->sent, SEND | READ | WRITE}, {&s->received, RECV}, {&s->read_by, REMOTE_READ}, {&s->written_by, REMOTE_WRITE}};
	end_make(&s->end, device, &usual);
	for (int i = 0; i < 4; i++) {
		NEED(*counters[i].c = ibv_create_comp_cntr(s->end.context, wrs));
		WANT(ibv_qp_attach_comp_cntr(s->end.qp, *counters[i].c, (uint32_t[]){0, counters[i].ops}), 0);
	}
}

static void unmake(struct side *s)
{
	VERB(int, ibv_destroy_comp_cntr, struct comp_cntr *);
	struct ibv_qp_init_attr init = qp_attr(s->end.send_cq, IBV_QPT_RC);
	WANT(ibv_destroy_qp(s->end.qp), 0);
	WANT(ibv_destroy_comp_cntr(s->sent) | ibv_destroy_comp_cntr(s->received), 0);
	WANT(ibv_destroy_comp_cntr(s->read_by) | ibv_destroy_comp_cntr(s->written_by), 0);
	NEED(s->end.qp = ibv_create_qp(s->end.pd, &init));
	end_close(&s->end);
}

static void settle(struct side *a, struct side *b)
{
	drain(a);
	drain(b);
	want_count(a->sent, a->sends.ok, a->sends.errors);
	want_count(b->sent, b->sends.ok, b->sends.errors);
	want_count(a->received, a->receives.ok, a->receives.errors);
	want_count(b->received, b->receives.ok, b->receives.errors);
	want_count(a->read_by, b->remote_reads, 0);
	want_count(b->read_by, a->remote_reads, 0);
	want_count(a->written_by, b->remote_writes, 0);
	want_count(b->written_by, a->remote_writes, 0);
}

/* SELFTEST_SEED is the seed. */
void case_comp_cntr_random(void)
{
	struct side *sides = calloc(2, sizeof(*sides)), *a = &sides[0], *b = &sides[1];
	const char *text = getenv("SELFTEST_SEED");
	NEED(sides && text);
	seed = strtoull(text, NULL, 10);
	make(a, "mlx5_0");
	make(b, "mlx5_1");
	end_connect(&a->end, &b->end, &usual);
	for (int step = 0; step < STEPS && !failures; step++) {
		bool first = draw(2);
		struct side *s = first ? a : b, *other = first ? b : a;
		switch (draw(12)) {
		case 0:
			poll_some(s, draw(DEPTH));
			break;
		case 1:
			poll_received(s, draw(DEPTH));
			break;
		case 2: /* both ways, or refused where the queue pair has failed */
			if (!draw(4) && !move(&s->end, IBV_QPS_SQD) && move(&s->end, IBV_QPS_RTS))
				WANT(state_of(&s->end), IBV_QPS_ERR);
			break;
		case 3:
			if (draw(10))
				break;
			settle(a, b);
			WANT(move(&a->end, IBV_QPS_RESET), 0);
			WANT(move(&b->end, IBV_QPS_RESET), 0);
			end_connect(&a->end, &b->end, &usual);
			break;
		case 4:
		case 5:
		case 6:
		case 7:
			receive_one(s);
			break;
		default:
			send_one(s, other);
		}
	}
	settle(a, b);
	WANT(a->sends.ok > 100 && b->sends.ok > 100 && a->sends.errors > 10 && b->sends.errors > 10, true);
	unmake(a);
	unmake(b);
	free(sides);
}
