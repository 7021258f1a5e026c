/* SPDX-License-Identifier: Apache-2.0
 *
 * nic_queue.c: the frames that rules deliver to a queue pair, until its device takes them. The nic's lock protects a queue,
 * apart from the number of its frames, which its device reads to see whether there is any.
 */
#include <stdlib.h>
#include <string.h>

#include "nic_engine.h"

enum {
	ROOM = 512, /* frames. The device takes them a thousand times a second */
	MOST = NIC_PARSE_MAX + 4, /* bytes of a frame, with a tag that was put back */
};

struct nic_queue {
	unsigned n; /* atomic */
	unsigned first;
	struct {
		unsigned len;
		uint8_t data[MOST];
	} *frame; /* ROOM, from the first delivery on: most queue pairs get none */
};

struct nic_queue *nic_queue_new(void)
{
	return calloc(1, sizeof(struct nic_queue));
}

void nic_queue_free(struct nic_queue *queue)
{
	if (queue)
		free(queue->frame);
	free(queue);
}

void nic_queue_add(struct nic_queue *queue, const struct nic_packet *packet)
{
	unsigned n = queue->n, at = (queue->first + n) % ROOM;

	if (!queue->frame)
		queue->frame = malloc(ROOM * sizeof *queue->frame);
	if (!queue->frame || n == ROOM || packet->len > MOST)
		return;
	queue->frame[at].len = packet->len;
	memcpy(queue->frame[at].data, packet->frame, packet->len);
	__atomic_store_n(&queue->n, n + 1, __ATOMIC_RELEASE);
}

unsigned nic_queue_remove(struct nic_queue *queue, uint8_t *to)
{
	unsigned len;

	if (!queue->n)
		return 0;
	len = queue->frame[queue->first].len;
	memcpy(to, queue->frame[queue->first].data, len);
	queue->first = (queue->first + 1) % ROOM;
	__atomic_store_n(&queue->n, queue->n - 1, __ATOMIC_RELEASE);
	return len;
}

unsigned nic_queue_waiting(const struct nic_queue *queue)
{
	return __atomic_load_n(&queue->n, __ATOMIC_ACQUIRE);
}
