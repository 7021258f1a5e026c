/* SPDX-License-Identifier: Apache-2.0
 *
 * nic_wire.c: the packets and bytes of a kernel buffer on the wire.
 */
#include "nic_engine.h"

enum {
	TAG_BYTES = 4,
	UDP_BYTES = 8,
	TCP_OFFSET_BYTE = 12, /* of the TCP header: its length in words, in the upper half */
};

/* The headers that each segment has, from the start of the data at hand on; 0 when they
 * cannot be seen. */
static unsigned header_bytes(const struct nic_frame *f)
{
	if (!f->gso_start)
		return 0;
	if (f->gso_udp)
		return f->gso_start + UDP_BYTES;
	if (f->gso_start + TCP_OFFSET_BYTE >= f->held)
		return 0;
	return f->gso_start + (f->data[f->gso_start + TCP_OFFSET_BYTE] >> 4) * 4;
}

int nic_wire(const struct nic_frame *f, uint64_t *packets, uint64_t *bytes)
{
	unsigned tag = f->tag ? TAG_BYTES : 0, headers;

	*packets = 1;
	*bytes = f->full + tag;
	if (!f->gso_size)
		return 0;
	headers = header_bytes(f);
	if (!headers)
		return 1;
	if (f->full > headers) {
		*packets = (f->full - headers + f->gso_size - 1) / f->gso_size;
		*bytes += (*packets - 1) * (headers + tag);
	}
	return 0;
}
