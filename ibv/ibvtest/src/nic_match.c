/* SPDX-License-Identifier: Apache-2.0
 *
 * nic_match.c: rules and the order in which they win.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nic_engine.h"

_Static_assert(sizeof(struct nic_layer) == 80, "nic_layer has padding");
_Static_assert(sizeof(struct nic_key) == 184, "nic_key has padding");

static int any(const void *field, size_t size)
{
	const uint8_t *p = field;

	for (size_t i = 0; i < size; i++)
		if (p[i])
			return 1;
	return 0;
}

#define ANY(field) any(&(field), sizeof(field))

/* The headers that a layer's masks ask for. */
static uint32_t asks_for(const struct nic_layer *m)
{
	uint32_t p = 0;

	if (ANY(m->dmac) || ANY(m->smac) || m->ether_type)
		p |= NIC_ETH;
	if (m->tci[0])
		p |= NIC_TAG;
	if (m->tci[1])
		p |= NIC_TAG2;
	if (m->tos || m->ttl || m->ip_frag || ANY(m->src_ip) || ANY(m->dst_ip))
		p |= NIC_IP;
	if (m->flow_label)
		p |= NIC_IPV6;
	if (m->ip_protocol)
		p |= NIC_PROTO;
	if (m->sport || m->dport)
		p |= NIC_PORTS;
	if (m->tcp_flags)
		p |= NIC_TCPFLAGS;
	if (m->icmp_type || m->icmp_code)
		p |= NIC_ICMP;
	if (m->esp_spi)
		p |= NIC_ESP;
	if (m->mpls)
		p |= NIC_MPLS;
	return p;
}

static int complete_layer(struct nic_layer *value, struct nic_layer *mask)
{
	uint32_t asked = asks_for(mask);

	/* The 4 bytes of an IPv4 address are the first 4 of an IPv6 one. */
	if ((ANY(mask->src_ip) || ANY(mask->dst_ip)) && !(value->present & (NIC_IPV4 | NIC_IPV6)))
		return EINVAL;
	/* Asked for, and asked to be absent. */
	if (asked & mask->present & ~value->present)
		return EINVAL;
	mask->present |= asked;
	value->present |= asked;
	return 0;
}

int nic_match_complete(struct nic_match *m)
{
	const uint8_t *value = (const uint8_t *)&m->value, *mask = (const uint8_t *)&m->mask;
	uint32_t asked = 0;
	int err;

	for (size_t i = 0; i < sizeof m->value; i++)
		if (value[i] & ~mask[i])
			return EINVAL;
	err = complete_layer(&m->value.outer, &m->mask.outer);
	if (!err)
		err = complete_layer(&m->value.inner, &m->mask.inner);
	if (err)
		return err;
	if (m->mask.vni)
		asked |= NIC_VXLAN;
	if (m->mask.gre_protocol)
		asked |= NIC_GRE;
	if (m->mask.gre_key)
		asked |= NIC_GRE | NIC_GRE_KEY;
	if (m->mask.mpls && !(m->value.tunnel & (NIC_MPLS_GRE | NIC_MPLS_UDP)))
		return EINVAL;
	if (asked & m->mask.tunnel & ~m->value.tunnel)
		return EINVAL;
	m->mask.tunnel |= asked;
	m->value.tunnel |= asked;
	return 0;
}

static uint32_t table_of(const struct nic_rule_attr *attr)
{
	if (attr->flags & NIC_LAST)
		return UINT32_MAX;
	return 2 * (uint32_t)attr->priority + !(attr->flags & NIC_DONT_TRAP);
}

int nic_rule_new(const struct nic_rule_attr *attr, struct nic_rule **out)
{
	struct nic_rule *rule = calloc(1, sizeof *rule);
	uint64_t value[NIC_KEY_WORDS], mask[NIC_KEY_WORDS];
	int err;

	if (!rule)
		return ENOMEM;
	rule->attr = *attr;
	rule->table = table_of(attr);
	err = nic_match_complete(&rule->attr.match);
	if (err) {
		free(rule);
		return err;
	}
	memcpy(value, &rule->attr.match.value, sizeof value);
	memcpy(mask, &rule->attr.match.mask, sizeof mask);
	for (unsigned i = 0; i < NIC_KEY_WORDS; i++)
		if (mask[i])
			rule->test[rule->tests++] = (struct nic_test){ i, mask[i], value[i] };
	rule->hash = rule->table;
	for (unsigned i = 0; i < rule->tests; i++) {
		rule->hash = (rule->hash ^ rule->test[i].value ^ i) * 0x9e3779b97f4a7c15;
		rule->hash ^= rule->hash >> 32;
	}
	*out = rule;
	return 0;
}

static struct nic_rule **bucket_of(const struct nic_rules *rules, const struct nic_rule *rule)
{
	return &rules->bucket[rule->hash % rules->cap];
}

static void link_rule(struct nic_rules *rules, struct nic_rule *rule)
{
	struct nic_rule **bucket = bucket_of(rules, rule);

	rule->next = *bucket;
	*bucket = rule;
}

static void unlink_rule(struct nic_rules *rules, struct nic_rule *rule)
{
	struct nic_rule **at = bucket_of(rules, rule);

	while (*at != rule)
		at = &(*at)->next;
	*at = rule->next;
}

static int grow(struct nic_rules *rules)
{
	size_t cap = rules->cap ? 2 * rules->cap : 64;
	struct nic_rule **rule = realloc(rules->rule, cap * sizeof *rule), **bucket;

	if (!rule)
		return ENOMEM;
	rules->rule = rule;
	bucket = calloc(cap, sizeof *bucket);
	if (!bucket)
		return ENOMEM;
	free(rules->bucket);
	rules->bucket = bucket;
	rules->cap = cap;
	for (size_t i = 0; i < rules->len; i++)
		link_rule(rules, rules->rule[i]);
	return 0;
}

static int same_entry(const struct nic_rule *a, const struct nic_rule *b)
{
	return a->table == b->table && !memcmp(&a->attr.match, &b->attr.match, sizeof a->attr.match);
}

const struct nic_rule *nic_rules_twin(const struct nic_rules *rules, const struct nic_rule *rule)
{
	if (!rules->cap)
		return NULL;
	for (const struct nic_rule *r = *bucket_of(rules, rule); r; r = r->next)
		if (same_entry(r, rule))
			return r;
	return NULL;
}

int nic_rules_insert(struct nic_rules *rules, struct nic_rule *rule)
{
	size_t at = rules->len;
	int err;

	if (rules->len == rules->cap && grow(rules))
		return ENOMEM;
	err = nic_tables_take(rules, rule, nic_rules_twin(rules, rule));
	if (err)
		return err;
	while (at > 0 && rules->rule[at - 1]->table > rule->table)
		at--;
	memmove(rules->rule + at + 1, rules->rule + at, (rules->len - at) * sizeof *rules->rule);
	rules->rule[at] = rule;
	rules->len++;
	link_rule(rules, rule);
	nic_cache_change(rules, rule);
	return 0;
}

void nic_rules_remove(struct nic_rules *rules, struct nic_rule *rule)
{
	for (size_t i = rules->len; i-- > 0;) { /* the last ones come and go */
		if (rules->rule[i] != rule)
			continue;
		unlink_rule(rules, rule);
		if (!nic_rules_twin(rules, rule))
			nic_tables_give(rule);
		rules->len--;
		memmove(rules->rule + i, rules->rule + i + 1, (rules->len - i) * sizeof *rules->rule);
		nic_cache_change(rules, NULL);
		return;
	}
}

void nic_rules_free(struct nic_rules *rules)
{
	for (size_t i = 0; i < rules->len; i++)
		free(rules->rule[i]);
	free(rules->rule);
	free(rules->bucket);
	rules->rule = NULL;
	rules->bucket = NULL;
	rules->len = rules->cap = 0;
	nic_tables_free(rules);
	nic_cache_change(rules, NULL);
}

static int matches(const struct nic_rule *rule, const uint64_t *key)
{
	for (unsigned i = 0; i < rule->tests; i++) {
		const struct nic_test *t = &rule->test[i];

		if ((key[t->word] & t->mask) != t->value)
			return 0;
	}
	return 1;
}

static void give(struct nic_counter *counter, struct nic_queue *queue, const struct nic_packet *packet)
{
	if (counter) {
		counter->packets += packet->packets;
		counter->bytes += packet->bytes;
	}
	if (queue && packet->frame)
		nic_queue_add(queue, packet);
}

/* Is no rule before this one in the entry's list with the same counter (or the same queue)? */
static int first_counter(const struct nic_rules *rules, const struct nic_rule *entry, const struct nic_rule *rule)
{
	const struct nic_rule *r = *bucket_of(rules, entry);

	while (!same_entry(r, entry) || r->attr.counter != rule->attr.counter)
		r = r->next;
	return r == rule;
}

static int first_queue(const struct nic_rules *rules, const struct nic_rule *entry, const struct nic_rule *rule)
{
	const struct nic_rule *r = *bucket_of(rules, entry);

	while (!same_entry(r, entry) || r->attr.queue != rule->attr.queue)
		r = r->next;
	return r == rule;
}

/* The rules of one entry: each of their counters counts once, and each of their queues gets one copy. */
static void count_entry(const struct nic_rules *rules, const struct nic_rule *entry, const struct nic_packet *packet,
			struct nic_winners *winners)
{
	for (const struct nic_rule *r = *bucket_of(rules, entry); r; r = r->next) {
		struct nic_counter *counter = r->attr.counter;
		struct nic_queue *queue = r->attr.queue;

		if (!same_entry(r, entry))
			continue;
		if (counter && !first_counter(rules, entry, r))
			counter = NULL;
		if (queue && !first_queue(rules, entry, r))
			queue = NULL;
		if (!counter && !queue)
			continue;
		give(counter, queue, packet);
		if (winners->n < NIC_WINNERS) {
			winners->of[winners->n].counter = counter;
			winners->of[winners->n].queue = queue;
		}
		winners->n++;
	}
}

void nic_rules_count(const struct nic_rules *rules, const struct nic_key *key, const struct nic_packet *packet)
{
	const struct nic_winners *known;
	struct nic_winners winners = { 0 };
	uint64_t words[NIC_KEY_WORDS];
	uint32_t from = 0;

	memcpy(words, key, sizeof words);
	known = rules->cache ? nic_cache_find(rules->cache, words) : NULL;
	if (known) {
		for (unsigned i = 0; i < known->n; i++)
			give(known->of[i].counter, known->of[i].queue, packet);
		return;
	}
	for (size_t i = 0; i < rules->len; i++) {
		const struct nic_rule *r = rules->rule[i];

		if (r->table < from || !matches(r, words))
			continue;
		count_entry(rules, r, packet, &winners);
		if (!(r->attr.flags & NIC_DONT_TRAP))
			break;
		from = r->table + 1;
	}
	if (rules->cache && winners.n <= NIC_WINNERS)
		nic_cache_keep(rules->cache, &winners);
}
