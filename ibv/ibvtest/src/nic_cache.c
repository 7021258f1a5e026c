/* SPDX-License-Identifier: Apache-2.0
 *
 * nic_cache.c: a cache of rule lookups. A packet is identified by the words of its key that some
 * rule reads, under the union of the rules' masks, so packets with the same words match the same
 * rules. The cache is protected by the nic's lock.
 */
#include <stdlib.h>
#include <string.h>

#include "nic_engine.h"

enum {
	FEWEST = 16, /* rules for which a cache pays */
	ENTRIES = 1 << 12,
};

struct entry {
	unsigned age; /* the cache's when it was kept; else it is empty */
	struct nic_winners winners;
	uint64_t key[NIC_KEY_WORDS]; /* the first cache->words of them */
};

struct nic_cache {
	unsigned age; /* counts changes of the rules; no entry is of age 0 */
	size_t removed; /* rules, since all was made: their masks may still be in it */
	uint64_t all[NIC_KEY_WORDS]; /* the union of the masks */
	unsigned words;
	uint32_t word[NIC_KEY_WORDS];
	uint64_t mask[NIC_KEY_WORDS];
	struct entry *sought; /* where find looked in vain: keep fills it */
	struct entry entry[ENTRIES];
};

static void add_masks(struct nic_cache *c, const struct nic_rule *rule)
{
	for (unsigned t = 0; t < rule->tests; t++)
		c->all[rule->test[t].word] |= rule->test[t].mask;
}

/* take_masks looks at all rules only when as many were removed as there are: a mask that no
 * rule has any more does no harm, and a change must not cost more where there are more rules. */
static void take_masks(struct nic_cache *c, const struct nic_rules *rules, const struct nic_rule *added)
{
	if (added && c->words) {
		add_masks(c, added);
	} else if (!c->words || ++c->removed > rules->len) {
		memset(c->all, 0, sizeof c->all);
		c->removed = 0;
		for (size_t i = 0; i < rules->len; i++)
			add_masks(c, rules->rule[i]);
	}
	c->words = 0;
	for (unsigned w = 0; w < NIC_KEY_WORDS; w++) {
		if (!c->all[w])
			continue;
		c->word[c->words] = w;
		c->mask[c->words++] = c->all[w];
	}
}

void nic_cache_change(struct nic_rules *rules, const struct nic_rule *added)
{
	if (rules->len < FEWEST) {
		free(rules->cache);
		rules->cache = NULL;
		return;
	}
	if (!rules->cache)
		rules->cache = calloc(1, sizeof *rules->cache);
	if (!rules->cache)
		return;
	if (!++rules->cache->age) { /* all ages were used */
		memset(rules->cache->entry, 0, sizeof rules->cache->entry);
		rules->cache->age = 1;
	}
	take_masks(rules->cache, rules, added);
}

const struct nic_winners *nic_cache_find(struct nic_cache *c, const uint64_t *key)
{
	uint64_t seen[NIC_KEY_WORDS], hash = 0;
	struct entry *e;

	for (unsigned i = 0; i < c->words; i++) {
		seen[i] = key[c->word[i]] & c->mask[i];
		hash = (hash ^ seen[i]) * 0x9e3779b97f4a7c15;
		hash ^= hash >> 32;
	}
	e = &c->entry[hash % ENTRIES];
	if (e->age == c->age && !memcmp(e->key, seen, c->words * sizeof *seen))
		return &e->winners;
	e->age = 0;
	memcpy(e->key, seen, c->words * sizeof *seen);
	c->sought = e;
	return NULL;
}

void nic_cache_keep(struct nic_cache *c, const struct nic_winners *winners)
{
	c->sought->age = c->age;
	c->sought->winners = *winners;
}
