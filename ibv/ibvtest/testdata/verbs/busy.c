// SPDX-License-Identifier: Apache-2.0
// busy.c: two devices that send to each other at once, each from a thread of its own, with
// work of the library's thread among it.
#include "ends.h"

#include <pthread.h>

enum { MESSAGES = 1000, AHEAD = 8 };

struct side {
	struct end end;
	unsigned sent, done, received, bad;
};

static void check(struct side *s, const struct ibv_wc *wc, uint64_t id)
{
	s->bad += wc->status != IBV_WC_SUCCESS || wc->wr_id != id;
}

/* Every message carries its number; so does its immediate data. */
static void *busy(void *arg)
{
	struct side *s = arg;
	struct end *e = &s->end;
	struct ibv_wc wc;
	for (unsigned i = 0; i < AHEAD; i++)
		s->bad += post_recv(e, i, 1024 + 8 * i, 8) != 0;
	while ((s->done < MESSAGES || s->received < MESSAGES) && !s->bad) {
		if (s->sent < MESSAGES && s->sent - s->done < AHEAD) {
			memcpy(e->buffer + s->sent % AHEAD * 8, &s->sent, sizeof(s->sent));
			s->bad += post(e, IBV_WR_SEND, s->sent, IBV_SEND_SIGNALED, s->sent % AHEAD * 8, 8, NULL, 0) != 0;
			s->sent++;
		}
		if (ibv_poll_cq(e->send_cq, 1, &wc) > 0)
			check(s, &wc, s->done++);
		if (ibv_poll_cq(e->recv_cq, 1, &wc) > 0) {
			unsigned number, at = 1024 + s->received % AHEAD * 8;
			memcpy(&number, e->buffer + at, sizeof(number));
			s->bad += number != s->received;
			check(s, &wc, s->received++);
			s->bad += post_recv(e, s->received + AHEAD - 1, at, 8) != 0;
		}
	}
	return NULL;
}

/* DELAY=mlx5_1/WQE=10us */
void case_busy(void)
{
	struct side a = {0}, b = {0};
	pthread_t threads[2];
	struct options o = usual;
	o.other_device = true;
	ends_up(&a.end, &b.end, &o);
	NEED(!pthread_create(&threads[0], NULL, busy, &a));
	NEED(!pthread_create(&threads[1], NULL, busy, &b));
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	WANT(a.bad, 0);
	WANT(b.bad, 0);
	WANT(a.received, MESSAGES);
	WANT(b.received, MESSAGES);
	ends_down(&a.end, &b.end);
}
