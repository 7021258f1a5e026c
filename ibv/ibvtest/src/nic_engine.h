/* SPDX-License-Identifier: Apache-2.0
 *
 * nic_engine.h: the declarations that the engine's files share. nic.h is the public interface. */
#ifndef IBVTEST_NIC_ENGINE_H
#define IBVTEST_NIC_ENGINE_H

#include <pthread.h>
#include <stddef.h>

#include "nic.h"

#define NIC_KEY_WORDS (sizeof(struct nic_key) / sizeof(uint64_t))

/* nic_test is one word that a rule looks at. */
struct nic_test {
	uint32_t word;
	uint64_t mask, value;
};

struct nic_rule {
	struct nic_rule_attr attr; /* with the headers that nic_match_complete added */
	uint32_t table;
	uint64_t hash;         /* of table and match */
	struct nic_rule *next; /* of its bucket */
	struct nic_group *group;
	unsigned tests;
	struct nic_test test[NIC_KEY_WORDS];
};

/* nic_cache remembers which counters packets with the same headers went to, as far as any
 * rule looks at them: with thousands of rules the search alone would lose packets. */
struct nic_cache;

/* nic_rules holds the rules of one direction in the order in which they win. */
struct nic_rules {
	struct nic_rule **rule;
	size_t len, cap;
	struct nic_rule **bucket; /* cap buckets by hash, to find an equal rule */
	struct nic_cache *cache; /* NULL: not needed, or no memory */
	struct nic_table *tables;
};

/* nic_match_complete adds the headers that the match's masks ask for. EINVAL: a value
 * outside its mask, or a mask that says no header. */
int nic_match_complete(struct nic_match *m);

int nic_rule_new(const struct nic_rule_attr *attr, struct nic_rule **rule);
int nic_rules_insert(struct nic_rules *rules, struct nic_rule *rule);
void nic_rules_remove(struct nic_rules *rules, struct nic_rule *rule);
void nic_rules_free(struct nic_rules *rules); /* and every rule */

/* nic_rules_twin returns a rule of the same table with the same match, or NULL. */
const struct nic_rule *nic_rules_twin(const struct nic_rules *rules, const struct nic_rule *rule);

/* nic_tables.c. take finds an entry for a rule that is not inserted yet, its twin's if it has one: ENOSPC without one,
 * EEXIST when one of the twins drops and the other does not. give returns the entry of a rule without a twin. */
int nic_tables_take(struct nic_rules *rules, struct nic_rule *rule, const struct nic_rule *twin);
void nic_tables_give(struct nic_rule *rule);
void nic_tables_free(struct nic_rules *rules);

/* nic_packet is a packet, or a buffer of several, and the bytes to deliver: NULL when they are not at hand. */
struct nic_packet {
	uint64_t packets, bytes;
	const uint8_t *frame;
	unsigned len;
};

/* nic_rules_count gives the packet to the counters and queues of the rules that the key wins. */
void nic_rules_count(const struct nic_rules *rules, const struct nic_key *key, const struct nic_packet *packet);

/* nic_winners is the list of the counters and queues that one packet goes to. A longer list is not cached. */
enum { NIC_WINNERS = 8 };

struct nic_winners {
	unsigned n;
	struct {
		struct nic_counter *counter;
		struct nic_queue *queue;
	} of[NIC_WINNERS];
};

/* nic_queue.c */
void nic_queue_add(struct nic_queue *queue, const struct nic_packet *packet);
unsigned nic_queue_remove(struct nic_queue *queue, uint8_t *to);

/* nic_cache.c. change updates the cache after a rule was added, or (NULL) after rules were
 * removed, made or freed. find returns NULL for a packet that is not cached, and keep adds it. */
void nic_cache_change(struct nic_rules *rules, const struct nic_rule *added);
const struct nic_winners *nic_cache_find(struct nic_cache *cache, const uint64_t *key);
void nic_cache_keep(struct nic_cache *cache, const struct nic_winners *winners);

/* nic_ring is an AF_PACKET socket and its ring, protected by the nic's lock. */
struct nic_ring {
	int fd;
	int sender; /* a second socket: a socket does not see what it sent itself */
	uint8_t *base;
	unsigned next;             /* the slot that is filled next */
	uint64_t taken;            /* frames that were looked at */
	uint64_t received, dropped; /* by the socket's own account, as of nic_ring_account */
};

/* nic_frame is one slot. It is valid until nic_ring_release. */
struct nic_frame {
	const uint8_t *data;
	unsigned held, full; /* bytes at hand, bytes of the frame */
	int egress;
	uint32_t tag; /* 0, or TPID << 16 | TCI of the tag that the kernel took off */
	unsigned gso_size;
	unsigned gso_start; /* where the innermost transport header begins; 0: not said */
	int gso_udp;
};

int nic_ring_open(struct nic_ring *ring, const char *ifname);
int nic_ring_every_port(struct nic_ring *ring);
void nic_ring_close(struct nic_ring *ring);
int nic_ring_peek(struct nic_ring *ring, struct nic_frame *frame);
void nic_ring_release(struct nic_ring *ring);
int nic_ring_account(struct nic_ring *ring);
int nic_ring_gone(const struct nic_ring *ring);
int nic_ring_address(const struct nic_ring *ring, uint8_t mac[6]);

/* nic_wire returns the packets and bytes of a frame on the wire. It returns 1, and counts the
 * frame as one packet, when it has segments whose headers are not in the ring's slot. */
int nic_wire(const struct nic_frame *frame, uint64_t *packets, uint64_t *bytes);

#endif
