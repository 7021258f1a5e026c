/* SPDX-License-Identifier: Apache-2.0
 *
 * nic_ring.c: the AF_PACKET socket that sees a netdev's frames, with a TPACKET_V2 ring.
 *
 * Version 2 and not 3: V2 delivers a frame at once. V3 delivers it with its block, which only
 * time or traffic closes, so that a read of a counter would lag behind.
 *
 * The socket sees frames that arrive after XDP and GRO, before tc, and frames that leave at the
 * driver, after software segmentation. PACKET_VNET_HDR tells how a buffer of several segments
 * will be, or was, cut. Frames sent with PACKET_QDISC_BYPASS pass no tap, and are not seen here.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nic_engine.h"

#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5 /* <linux/virtio_net.h> since Linux 6.2 */
#endif

/* 64 MiB: a sixth of a second at 200 kpps. A slot holds NIC_PARSE_MAX bytes of the frame
 * whatever the kernel puts before them (at most 92 bytes). */
enum {
	SLOT = 2048,
	SLOTS = 1 << 15,
	BLOCK = 1 << 17,
	RING = SLOT * SLOTS,
};

_Static_assert(TPACKET_ALIGN(TPACKET2_HDRLEN + 16) + sizeof(struct virtio_net_hdr) + 2 + NIC_PARSE_MAX <= SLOT,
	       "a slot is too small for NIC_PARSE_MAX");

int nic_ring_open(struct nic_ring *ring, const char *ifname)
{
	struct sockaddr_ll address = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };
	struct tpacket_req shape = { .tp_block_size = BLOCK, .tp_block_nr = RING / BLOCK, .tp_frame_size = SLOT, .tp_frame_nr = SLOTS };
	int version = TPACKET_V2, on = 1, err;

	memset(ring, 0, sizeof *ring);
	/* Protocol 0: nothing is received until the ring is there and the socket bound. */
	ring->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	ring->sender = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (ring->fd < 0 || ring->sender < 0) {
		err = errno;
		goto fail;
	}
	address.sll_ifindex = if_nametoindex(ifname);
	if (!address.sll_ifindex) {
		err = ENODEV;
		goto fail;
	}
	if (setsockopt(ring->fd, SOL_PACKET, PACKET_VERSION, &version, sizeof version) ||
	    setsockopt(ring->fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) ||
	    setsockopt(ring->fd, SOL_PACKET, PACKET_RX_RING, &shape, sizeof shape)) {
		err = errno;
		goto fail;
	}
	ring->base = mmap(NULL, RING, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, 0);
	if (ring->base == MAP_FAILED) {
		err = errno;
		ring->base = NULL;
		goto fail;
	}
	if (bind(ring->fd, (struct sockaddr *)&address, sizeof address)) {
		err = errno;
		goto fail;
	}
	address.sll_protocol = 0; /* it receives nothing */
	if (bind(ring->sender, (struct sockaddr *)&address, sizeof address)) {
		err = errno;
		goto fail;
	}
	return 0;
fail:
	nic_ring_close(ring);
	return err;
}

/* nic_ring_every_port: from here on the ring has the frames of every netdev. The sender stays with its own. */
int nic_ring_every_port(struct nic_ring *ring)
{
	struct sockaddr_ll address = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };

	return bind(ring->fd, (struct sockaddr *)&address, sizeof address) ? errno : 0;
}

void nic_ring_close(struct nic_ring *ring)
{
	if (ring->base)
		munmap(ring->base, RING);
	if (ring->fd >= 0)
		close(ring->fd);
	if (ring->sender >= 0)
		close(ring->sender);
	ring->base = NULL;
	ring->fd = ring->sender = -1;
}

static struct tpacket2_hdr *slot(const struct nic_ring *ring)
{
	return (struct tpacket2_hdr *)(ring->base + (size_t)ring->next * SLOT);
}

/* nic_ring_peek returns 0 when the next slot is not filled yet. */
int nic_ring_peek(struct nic_ring *ring, struct nic_frame *f)
{
	const struct tpacket2_hdr *h = slot(ring);
	const uint8_t *base = (const uint8_t *)h;
	const struct sockaddr_ll *from = (const void *)(base + TPACKET_ALIGN(sizeof *h));
	struct virtio_net_hdr vnet;
	uint32_t status = __atomic_load_n(&h->tp_status, __ATOMIC_ACQUIRE);

	if (!(status & TP_STATUS_USER))
		return 0;
	memcpy(&vnet, base + h->tp_mac - sizeof vnet, sizeof vnet);
	memset(f, 0, sizeof *f);
	f->data = base + h->tp_mac;
	f->held = h->tp_snaplen;
	f->full = h->tp_len;
	f->egress = from->sll_pkttype == PACKET_OUTGOING;
	if (status & TP_STATUS_VLAN_VALID) {
		uint32_t tpid = status & TP_STATUS_VLAN_TPID_VALID ? h->tp_vlan_tpid : ETH_P_8021Q;

		f->tag = tpid << 16 | h->tp_vlan_tci;
	}
	switch (vnet.gso_type & ~VIRTIO_NET_HDR_GSO_ECN) {
	case VIRTIO_NET_HDR_GSO_UDP_L4:
		f->gso_udp = 1;
		/* fallthrough */
	case VIRTIO_NET_HDR_GSO_TCPV4:
	case VIRTIO_NET_HDR_GSO_TCPV6:
		f->gso_size = vnet.gso_size;
		if (vnet.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)
			f->gso_start = vnet.csum_start;
	}
	return 1;
}

void nic_ring_release(struct nic_ring *ring)
{
	__atomic_store_n(&slot(ring)->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
	ring->next = (ring->next + 1) % SLOTS;
	ring->taken++;
}

/* nic_ring_account reads how many frames the socket received and dropped so far. The kernel counts
 * a frame as received when it gives it its slot, under one lock: every frame that it counts comes
 * out of nic_ring_peek, sooner or later. */
int nic_ring_account(struct nic_ring *ring)
{
	struct tpacket_stats s;
	socklen_t size = sizeof s;

	if (getsockopt(ring->fd, SOL_PACKET, PACKET_STATISTICS, &s, &size))
		return errno;
	ring->received += s.tp_packets - s.tp_drops; /* tp_packets counts both */
	ring->dropped += s.tp_drops;
	return 0;
}

/* nic_ring_gone: was the netdev removed, or moved to another namespace? The kernel unbinds
 * the sockets then. A netdev that is only down is not gone. */
int nic_ring_gone(const struct nic_ring *ring)
{
	struct sockaddr_ll address;
	socklen_t size = sizeof address;

	return getsockname(ring->sender, (struct sockaddr *)&address, &size) || address.sll_ifindex <= 0;
}

int nic_ring_address(const struct nic_ring *ring, uint8_t mac[6])
{
	struct sockaddr_ll address;
	socklen_t size = sizeof address;

	if (getsockname(ring->sender, (struct sockaddr *)&address, &size))
		return errno;
	memcpy(mac, address.sll_addr, 6);
	return 0;
}
