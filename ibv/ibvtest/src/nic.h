/* SPDX-License-Identifier: Apache-2.0
 *
 * nic.h: the packet engine of the software NIC. It counts the real packets of one
 * netdev by flow rules, as the flow steering of an RDMA NIC does.
 *
 * The uverbs kernel in software (uverbs/) holds the engine and one nic per device. It fills rules from the specs of flows and from the PRM match parameters of mlx5's matchers.
 *
 * Matching
 *
 * A packet is parsed once into a struct nic_key, its headers in host byte order. A rule is a
 * value and a mask of that same struct: it matches when key & mask == value. The headers of a
 * packet are part of the key (`present`), and nic_rule_add adds the headers that a rule's masks
 * require: a mask on a field never matches a packet that lacks the field.
 *
 * The parser follows docs/flows.md, so a rule and a flow that match the
 * same fields take the same packets. The differences below exist because a NIC's specs cannot
 * express a field or read it otherwise. The code that maps flows to specs honours or refuses
 * them:
 *
 *   1. ip_protocol over IPv6 is the upper protocol, behind all extension headers, as
 *      mlx5 has it; it is absent where flow's walk finds none. The next-header byte of
 *      the IPv6 header (flow's `ipv6 nexthdr`) is not in the key.
 *   2. A VLAN spec asks for a C-tag (0x8100) or an S-tag (0x88a8), flow's vlan clause for
 *      either: a flow with a vlan clause takes two rules, each tag of two four.
 * ether_type is the one behind the tags, as in flow.
 *   3. Only the first NIC_PARSE_MAX bytes of a frame are parsed (flow parses the whole frame).
 *      A header behind them is absent. No frame that an MTU of 1500 lets through is
 *      affected. Frames that were are in nic_stats.cut.
 *   4. `ip_frag` is set for every IPv4 fragment, the first one included, and for every
 *      IPv6 packet with a fragment header. Ports of a first fragment are there, of a
 *      later one not. mlx5's handling of a first fragment's ports is undocumented.
 *   5. MPLS in UDP is a NIC term that flow lacks, and MPLS in GRE is inside the tunnel in flow; MPLS ends the parse.
 *
 * A spec with an empty mask requires no header on a NIC: a VXLAN spec with mask 0 matches every
 * packet, flow's `vxlan inner any` only a whole header. A rule can require the header by
 * `present`.
 *
 * Order of rules
 *
 * Rules of one direction stand in tables, one per priority; a lower number is looked at
 * first. In a table the rule added first wins; rules with the same match count together, each counter once, as the
 * destinations of one entry. A packet that a rule matches ends there,
 * except a NIC_DONT_TRAP rule: it counts, and the packet goes on to the next table. As in
 * mlx5, a priority is two tables: first its DONT_TRAP rules, then the others. So of
 * several matching DONT_TRAP rules of one priority one counts. NIC_LAST rules are a table
 * behind all (mlx5: rules for multicast only, without DONT_TRAP, whatever their priority).
 *
 * Counting
 *
 * Packets on the wire: a segmentation-offloaded buffer counts as its segments. Bytes: L2 without
 * FCS, the VLAN tag that the kernel took off included, each segment with its headers. Ingress
 * counts packets that the netdev received, egress packets that left by it. A socket receives a
 * copy, so NIC_DROP counts without dropping, and a trapping rule takes no packet from the kernel:
 * tests of either check the rule, not the traffic.
 *
 * Delivery
 *
 * A rule with a queue delivers the packets that it counts there. A buffer of several segments, and a frame that the ring
 * does not hold whole (NIC_PARSE_MAX), is not delivered. nic_send sends a frame. One to the netdev's own address, or
 * to a group, is also received, as by the loopback of a NIC.
 *
 * A nic may be used by any thread; calls are serialised by a lock of its own.
 */
#ifndef IBVTEST_NIC_H
#define IBVTEST_NIC_H

#include <stdint.h>

#define NIC_PARSE_MAX 1920

/* Bits of nic_layer.present. */
enum {
	NIC_ETH = 1 << 0,
	NIC_CVLAN = 1 << 1,  /* the outermost tag is 0x8100; tci[0] */
	NIC_SVLAN = 1 << 2,  /* the outermost tag is 0x88a8; tci[0] */
	NIC_CVLAN2 = 1 << 3, /* the second tag is 0x8100; tci[1] */
	NIC_SVLAN2 = 1 << 4, /* the second tag is 0x88a8; tci[1] */
	NIC_TAG = 1 << 5,    /* a tag of either kind */
	NIC_TAG2 = 1 << 6,
	NIC_IPV4 = 1 << 7,
	NIC_IPV6 = 1 << 8,
	NIC_IP = 1 << 9,        /* either */
	NIC_PROTO = 1 << 10,    /* ip_protocol */
	NIC_TCP = 1 << 11,      /* ip_protocol is 6 */
	NIC_UDP = 1 << 12,      /* ip_protocol is 17 */
	NIC_PORTS = 1 << 13,    /* sport and dport, of TCP or UDP */
	NIC_TCPFLAGS = 1 << 14, /* tcp_flags */
	NIC_ICMP = 1 << 15,     /* icmp_type, icmp_code: ICMP over IPv4, ICMPv6 over IPv6 */
	NIC_ESP = 1 << 16,      /* esp_spi */
	NIC_MPLS = 1 << 17,     /* mpls, directly behind Ethernet (0x8847, 0x8848) */
};

/* Bits of nic_key.tunnel. nic_key.inner has the headers inside the first tunnel. */
enum {
	NIC_VXLAN = 1 << 0,    /* UDP to 4789, the header whole, whatever its flags; vni */
	NIC_GRE = 1 << 1,      /* protocol 47, version 0, no routing, the header whole; gre_protocol */
	NIC_GRE_CSUM = 1 << 2, /* the GRE header has a checksum word */
	NIC_GRE_KEY = 1 << 3,  /* ... a key; gre_key */
	NIC_GRE_SEQ = 1 << 4,  /* ... a sequence word */
	NIC_MPLS_GRE = 1 << 5, /* mpls, in GRE (0x8847) */
	NIC_MPLS_UDP = 1 << 6, /* mpls, in UDP to 6635 */
};

/* nic_layer is the headers of a packet, or of the packet in a tunnel. Integers are in host byte
 * order, addresses as on the wire, IPv4 in the first 4 bytes. A field that the packet lacks is 0.
 * No padding: keys are compared by words. */
struct nic_layer {
	uint32_t present;
	uint16_t ether_type; /* behind the tags */
	uint16_t tci[2];     /* priority 3 bits, DEI 1, id 12; the outermost first */
	uint8_t dmac[6];
	uint8_t smac[6];
	uint8_t ip_protocol;
	uint8_t tos;     /* or IPv6's traffic class: DSCP 6 bits, ECN 2 */
	uint8_t ttl;     /* or IPv6's hop limit */
	uint8_t ip_frag; /* 1: a fragment */
	uint16_t sport, dport;
	uint16_t tcp_flags; /* 9 bits: NS CWR ECE URG ACK PSH RST SYN FIN */
	uint8_t src_ip[16];
	uint8_t dst_ip[16];
	uint32_t flow_label; /* IPv6, 20 bits */
	uint32_t esp_spi;
	uint32_t mpls; /* label 20 bits, TC 3, S 1, TTL 8 */
	uint8_t icmp_type, icmp_code;
	uint16_t zero;
};

struct nic_key {
	struct nic_layer outer, inner;
	uint32_t tunnel;
	uint32_t vni; /* 24 bits */
	uint32_t gre_key;
	uint16_t gre_protocol;
	uint16_t zero;
	uint32_t mpls; /* of NIC_MPLS_GRE or NIC_MPLS_UDP: the first entry */
	uint32_t zero2;
};

/* nic_match: key & mask == value. A value bit outside its mask is EINVAL. */
struct nic_match {
	struct nic_key value, mask;
};

/* nic_counter is memory of the caller, zeroed by it, and outlives every rule that names
 * it; any number of rules of one nic may. The nic writes it under its lock: read it by
 * nic_counter_read. */
struct nic_counter {
	uint64_t packets, bytes;
};

/* nic_queue holds delivered frames until nic_queue_take. What comes while it is full is lost. It outlives every rule
 * that names it. */
struct nic_queue;
struct nic_queue *nic_queue_new(void); /* NULL: no memory */
void nic_queue_free(struct nic_queue *queue);
unsigned nic_queue_waiting(const struct nic_queue *queue); /* frames, without the nic's lock */

enum {
	NIC_EGRESS = 1 << 0,    /* packets that leave by the netdev; otherwise those that come */
	NIC_DONT_TRAP = 1 << 1, /* count and go on to the next table */
	NIC_DROP = 1 << 2,
	NIC_DEFAULT_MISS = 1 << 3, /* ends the search; the kernel gets the packet */
	NIC_LAST = 1 << 4,
};

struct nic_rule_attr {
	uint16_t priority;
	uint32_t flags;
	struct nic_match match;
	struct nic_counter *counter; /* may be NULL */
	struct nic_queue *queue;     /* may be NULL */
};

struct nic;
struct nic_rule;

struct nic_stats {
	uint64_t ingress, egress; /* packets, segments counted one by one */
	uint64_t frames;          /* buffers from the socket: a GSO buffer is one */
	uint64_t drops;           /* frames without room in the ring: counts are short */
	uint64_t cut;             /* frames with a header behind NIC_PARSE_MAX */
	uint64_t rules;           /* in place now */
};

/* All calls return 0 or a positive errno. */

/* nic_open looks on at a netdev of the calling thread's network namespace. EPERM without
 * CAP_NET_RAW, ENODEV without such a netdev. It starts one thread. */
int nic_open(const char *ifname, struct nic **nic);

/* nic_close ends the thread and removes every rule. No other call may use nic meanwhile. */
void nic_close(struct nic *nic);

/* nic_misbehave makes a nic count wrongly, for a test that has to find out. */
enum nic_fault {
	NIC_LOSES_SENT,       /* it leaves out every eighth frame that leaves by the netdev */
	NIC_COUNTS_EVERY_PORT /* it counts the packets of every netdev of the network namespace */
};
int nic_misbehave(struct nic *nic, enum nic_fault fault);

/* nic_rule_add: the rule counts the packets that the nic receives from here on. attr is copied. ENOSPC when the table
 * has no room for the match; EEXIST when a rule with the same match is there of which one drops and the other does not. */
int nic_rule_add(struct nic *nic, const struct nic_rule_attr *attr, struct nic_rule **rule);

/* nic_rule_del counts the packets received before the call. NULL is allowed. */
void nic_rule_del(struct nic *nic, struct nic_rule *rule);

/* nic_sync returns when every frame that the socket had received before the call was
 * looked at. A reader of several counters syncs once and reads them by nic_counters_copy. */
int nic_sync(struct nic *nic);

/* nic_counter_read syncs, then copies the pair. It returns ENODEV when the netdev is gone, and
 * copies the pair all the same. */
int nic_counter_read(struct nic *nic, const struct nic_counter *counter, uint64_t *packets, uint64_t *bytes);

/* nic_counters_copy syncs once and copies n pairs of one array, all of one instant; with
 * clear they start at 0 again, and nothing is lost in between. */
int nic_counters_copy(struct nic *nic, struct nic_counter *from, struct nic_counter *to, unsigned n, int clear);

/* nic_queue_take copies the oldest frame, of at most NIC_PARSE_MAX + 4 bytes, and returns its length; 0: there is none. */
unsigned nic_queue_take(struct nic *nic, struct nic_queue *queue, uint8_t *to);

/* nic_send sends a frame by the netdev. */
int nic_send(struct nic *nic, const uint8_t *frame, unsigned len);

/* nic_stats_read syncs first. drops above 0: counts are no longer exact. The nic says so
 * on stderr once, too. */
int nic_stats_read(struct nic *nic, struct nic_stats *stats);

/* nic_drops is nic_stats.drops as of the last sync or look, without either. */
uint64_t nic_drops(struct nic *nic);

/* nic_parse reads a frame's headers; tests use it, too. It returns 1 when a header lay behind
 * NIC_PARSE_MAX or len, though the frame, of full bytes, goes on there. */
int nic_parse(const uint8_t *frame, unsigned len, unsigned full, struct nic_key *key);

#endif
