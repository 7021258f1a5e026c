/* SPDX-License-Identifier: Apache-2.0
 *
 * efa_hw_memory.c: the card's access to the memory of processes, and its completion queue entries. */
#include <errno.h>
#include <string.h>

#include "efa_ib.h"

bool efa_translate(struct efa_dev *dev, const struct uv_pd *pd, uint32_t key, bool remote, uint32_t access, uint64_t addr,
		   uint64_t length, struct efa_buffers *to)
{
	const struct efa_mr *m = key >> 8 < EFA_MAX_MR ? dev->mrs[key >> 8] : NULL;
	if (!m || (remote ? m->mr.rkey : m->mr.lkey) != key || m->mr.pd != pd || (m->mr.access & access) != access)
		return false;
	if (addr < m->mr.iova || addr - m->mr.iova > m->mr.length || length > m->mr.length - (addr - m->mr.iova) || to->n == EFA_BUFFERS)
		return false;
	to->of[to->n++] = (struct efa_buffer){m->mr.object.task, m->mr.start + (addr - m->mr.iova), length};
	to->length += length;
	return true;
}

int efa_copy(const struct efa_buffers *to, uint64_t skip, const struct efa_buffers *from, const uint8_t *inlined)
{
	static uint8_t chunk[65536]; /* under uv_lock */
	unsigned source = 0, target = 0;
	uint64_t read = 0, written = skip, left = from->length;
	int err = 0;
	while (left && !err) {
		while (target < to->n && written >= to->of[target].length)
			written -= to->of[target++].length;
		while (!inlined && source < from->n && read >= from->of[source].length)
			read -= from->of[source++].length;
		if (target == to->n || (!inlined && source == from->n))
			return EFAULT;
		uint64_t n = to->of[target].length - written;
		if (!inlined && n > from->of[source].length - read)
			n = from->of[source].length - read;
		n = n > left ? left : n;
		n = n > sizeof(chunk) ? sizeof(chunk) : n;
		const uint8_t *bytes = chunk;
		if (inlined)
			bytes = inlined + read;
		else
			err = uv_copy_from_user(from->of[source].task, chunk, from->of[source].addr + read, n);
		if (!err)
			err = uv_copy_to_user(to->of[target].task, to->of[target].addr + written, bytes, n);
		read += n;
		written += n;
		left -= n;
	}
	return err;
}

/* The phase of the entries alternates with each round of the ring: a consumer tells a new one by it. */
void efa_complete(struct efa_cq *cq, unsigned sub, struct efa_io_rx_cdesc_ex *e)
{
	uint32_t n = cq->produced[sub]++;
	uint8_t *to = cq->ring + ((size_t)sub * cq->entries + n % cq->entries) * cq->entry_size;
	uint8_t flags = (e->flags & ~EFA_IO_CDESC_COMMON_PHASE) | !(n / cq->entries % 2);
	const size_t at = offsetof(struct efa_io_rx_cdesc_ex, flags);
	memcpy(to, e, at);
	memcpy(to + at + 1, (const uint8_t *)e + at + 1, cq->entry_size - at - 1);
	__atomic_store_n(to + at, flags, __ATOMIC_RELEASE);
}
