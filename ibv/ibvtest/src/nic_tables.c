/* SPDX-License-Identifier: Apache-2.0
 *
 * nic_tables.c: the room in the tables, as mlx5_core divides a table into groups (fs_core.c). All entries of a group
 * have one mask. The first groups have an equal part of the table each, later ones have one entry, so a table is full
 * before all its entries are used when its rules have many masks. Rules with the same match share an entry.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nic_engine.h"

enum {
	ENTRIES = 1 << 16, /* MLX5_FS_MAX_ENTRIES */
	PARTS = 6,         /* MLX5_FS_MAX_TYPES: groups that have a part of the table; another part is for the others */
	PART = ENTRIES / (PARTS + 1),
};

struct nic_group {
	struct nic_group *next; /* in the order of start */
	struct nic_table *table;
	unsigned start, size, used;
	struct nic_key mask;
};

struct nic_table {
	struct nic_table *next;
	uint32_t number;
	unsigned parts; /* groups that have a part */
	struct nic_group *groups;
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

/* The group lies in the first gap that is large enough. */
static int new_group(struct nic_table *table, const struct nic_key *mask, struct nic_group **made)
{
	unsigned start = 0, size = table->parts < PARTS ? PART : 1;
	struct nic_group **at = &table->groups, *g;

	for (; *at && start + size > (*at)->start; at = &(*at)->next)
		start = (*at)->start + (*at)->size;
	if (start + size > ENTRIES)
		return ENOSPC;
	g = calloc(1, sizeof *g);
	if (!g)
		return ENOMEM;
	*g = (struct nic_group){ .next = *at, .table = table, .start = start, .size = size, .mask = *mask };
	*at = g;
	table->parts += size == PART;
	*made = g;
	return 0;
}

static void free_group(struct nic_group *group)
{
	struct nic_group **at = &group->table->groups;

	while (*at != group)
		at = &(*at)->next;
	*at = group->next;
	group->table->parts -= group->size == PART;
	free(group);
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
	for (g = table->groups; g; g = g->next)
		if (g->used < g->size && !memcmp(&g->mask, &rule->attr.match.mask, sizeof g->mask))
			break;
	if (!g)
		err = new_group(table, &rule->attr.match.mask, &g);
	if (err)
		return err;
	g->used++;
	rule->group = g;
	return 0;
}

void nic_tables_give(struct nic_rule *rule)
{
	if (!--rule->group->used)
		free_group(rule->group);
}

void nic_tables_free(struct nic_rules *rules)
{
	struct nic_table *t;

	while ((t = rules->tables)) {
		while (t->groups)
			free_group(t->groups);
		rules->tables = t->next;
		free(t);
	}
}
