/* SPDX-License-Identifier: Apache-2.0
 *
 * nic_tables.c: the room in the tables, as mlx5_core divides a table into groups (fs_core.c). All entries of a group
 * have one mask. The first groups have an equal part of the table each, later ones have one entry, so a table is full
 * before all its entries are used when its rules have many masks. Rules with the same match share an entry.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "nic_engine.h"

enum {
	ENTRIES = 1 << 16, /* MLX5_FS_MAX_ENTRIES */
	PARTS = 6,         /* MLX5_FS_MAX_TYPES: groups that have a part of the table; another part is for the others */
	PART = ENTRIES / (PARTS + 1),
};

struct nic_group {
	struct nic_group *next, **link; /* of the list that it is in */
	struct nic_table *table;
	unsigned start, size, used;
	struct nic_key mask;
};

struct nic_table {
	struct nic_table *next;
	uint32_t number;
	unsigned parts; /* groups that have a part */
	struct nic_group *open, *full; /* with and without a free entry */
	uint64_t taken[ENTRIES / 64];  /* the entries of all groups, a bit each */
};

static struct nic_table *table_of(struct nic_rules *rules, uint32_t number)
{
	struct nic_table *t = rules->tables;

	while (t && t->number != number)
		t = t->next;
	if (t)
		return t;
	t = calloc(1, sizeof *t);
	if (t) {
		t->number = number;
		t->next = rules->tables;
		rules->tables = t;
	}
	return t;
}

static void list(struct nic_group *g, struct nic_group **head)
{
	g->next = *head;
	g->link = head;
	if (g->next)
		g->next->link = &g->next;
	*head = g;
}

static void unlist(struct nic_group *g)
{
	*g->link = g->next;
	if (g->next)
		g->next->link = g->link;
}

static bool taken(const struct nic_table *table, unsigned entry)
{
	return table->taken[entry / 64] >> entry % 64 & 1;
}

/* The start of the first gap of that size, or ENTRIES. */
static unsigned gap(const struct nic_table *table, unsigned size)
{
	unsigned start = 0, end = 0;

	while (end < ENTRIES && end - start < size)
		if (!taken(table, end))
			end++;
		else if (table->taken[end / 64] == UINT64_MAX)
			start = end = (end | 63) + 1;
		else
			start = ++end;
	return end - start < size ? ENTRIES : start;
}

static void mark(struct nic_group *g)
{
	for (unsigned i = g->start; i < g->start + g->size; i++)
		g->table->taken[i / 64] ^= 1ULL << i % 64;
}

static int new_group(struct nic_table *table, const struct nic_key *mask, struct nic_group **made)
{
	unsigned size = table->parts < PARTS ? PART : 1, start = gap(table, size);
	struct nic_group *g;

	if (start == ENTRIES)
		return ENOSPC;
	g = calloc(1, sizeof *g);
	if (!g)
		return ENOMEM;
	*g = (struct nic_group){ .table = table, .start = start, .size = size, .mask = *mask };
	list(g, &table->open);
	mark(g);
	table->parts += size == PART;
	*made = g;
	return 0;
}

static void free_group(struct nic_group *g)
{
	unlist(g);
	mark(g);
	g->table->parts -= g->size == PART;
	free(g);
}

int nic_tables_take(struct nic_rules *rules, struct nic_rule *rule, const struct nic_rule *twin)
{
	struct nic_table *table;
	struct nic_group *g;
	int err = 0;

	if (twin) {
		rule->group = twin->group;
		return (twin->attr.flags ^ rule->attr.flags) & NIC_DROP ? EEXIST : 0;
	}
	table = table_of(rules, rule->table);
	if (!table)
		return ENOMEM;
	for (g = table->open; g; g = g->next)
		if (!memcmp(&g->mask, &rule->attr.match.mask, sizeof g->mask))
			break;
	if (!g)
		err = new_group(table, &rule->attr.match.mask, &g);
	if (err)
		return err;
	if (++g->used == g->size) {
		unlist(g);
		list(g, &table->full);
	}
	rule->group = g;
	return 0;
}

void nic_tables_give(struct nic_rule *rule)
{
	struct nic_group *g = rule->group;

	if (g->used-- == g->size) {
		unlist(g);
		list(g, &g->table->open);
	}
	if (!g->used)
		free_group(g);
}

void nic_tables_free(struct nic_rules *rules)
{
	struct nic_table *t;

	while ((t = rules->tables)) {
		while (t->open)
			free_group(t->open);
		while (t->full)
			free_group(t->full);
		rules->tables = t->next;
		free(t);
	}
}
