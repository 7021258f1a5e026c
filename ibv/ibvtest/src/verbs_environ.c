/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_environ.c: the environment that configures the library. secure_getenv, since
 * the library is loaded into privileged processes: a set-id program sees none of it. */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verbs_soft.h"

static char *variable(const char *name)
{
	const char *value = secure_getenv(name);
	return strdup(value ? value : "");
}

void verbs_environ_load(struct verbs_environ *e)
{
	e->devices = variable("FLOWTALLY_IBVTEST_DEVICES");
	e->fail = variable("FLOWTALLY_IBVTEST_FAIL");
	e->delay = variable("FLOWTALLY_IBVTEST_DELAY");
	e->without = variable("FLOWTALLY_IBVTEST_WITHOUT");
	e->control = variable("FLOWTALLY_IBVTEST_CONTROL");
	e->statistics = variable("FLOWTALLY_IBVTEST_STATISTICS");
	e->comp_cntr_max = variable("FLOWTALLY_IBVTEST_COMP_CNTR_MAX");
	e->comp_cntr_ops = variable("FLOWTALLY_IBVTEST_COMP_CNTR_OPS");
}

void verbs_environ_free(struct verbs_environ *e)
{
	free(e->devices);
	free(e->fail);
	free(e->delay);
	free(e->without);
	free(e->control);
	free(e->statistics);
	free(e->comp_cntr_max);
	free(e->comp_cntr_ops);
}

/* The errnos of the verbs, by name, for the faults that a test sets. */
static const struct {
	const char *name;
	int number;
} errnos[] = {
	{"EPERM", EPERM},	  {"ENOENT", ENOENT},	      {"EINTR", EINTR},		{"EIO", EIO},
	{"ENXIO", ENXIO},	  {"EBADF", EBADF},	      {"EAGAIN", EAGAIN},	{"ENOMEM", ENOMEM},
	{"EACCES", EACCES},	  {"EFAULT", EFAULT},	      {"EBUSY", EBUSY},		{"EEXIST", EEXIST},
	{"ENODEV", ENODEV},	  {"EINVAL", EINVAL},	      {"ENFILE", ENFILE},	{"EMFILE", EMFILE},
	{"ENOSPC", ENOSPC},	  {"EPIPE", EPIPE},	      {"ERANGE", ERANGE},	{"ENOSYS", ENOSYS},
	{"EPROTO", EPROTO},	  {"EOVERFLOW", EOVERFLOW},   {"EOPNOTSUPP", EOPNOTSUPP}, {"ENOTSUP", ENOTSUP},
	{"ENOBUFS", ENOBUFS},	  {"ETIMEDOUT", ETIMEDOUT},   {"EREMOTEIO", EREMOTEIO}, {"ECANCELED", ECANCELED},
	{"ABORT", VERBS_ABORT},	  {"EXIT", VERBS_EXIT},
};

int verbs_errno(const char *name, size_t n)
{
	char *end;
	for (size_t i = 0; i < sizeof(errnos) / sizeof(errnos[0]); i++)
		if (strlen(errnos[i].name) == n && !memcmp(errnos[i].name, name, n))
			return errnos[i].number;
	long number = strtol(name, &end, 10);
	return n && end == name + n && number > 0 && number < 4096 ? (int)number : -1;
}

/* copy truncates to size: truncated names match nothing. */
static void copy(char *to, size_t size, const char *from, size_t n)
{
	if (n >= size)
		n = size - 1;
	memcpy(to, from, n);
	to[n] = 0;
}

bool verbs_next_item(const char **list, struct verbs_item *item)
{
	const char *at = *list;
	while (*at == ',' || isspace((unsigned char)*at))
		at++;
	if (!*at)
		return false;
	size_t n = strcspn(at, ",");
	*list = at + n;
	while (n && isspace((unsigned char)at[n - 1]))
		n--;
	const char *value = memchr(at, '=', n);
	size_t key = value ? (size_t)(value - at) : n;
	copy(item->value, sizeof(item->value), value ? value + 1 : "", value ? n - key - 1 : 0);
	const char *slash = memchr(at, '/', key);
	size_t device = slash ? (size_t)(slash - at) : 0;
	copy(item->device, sizeof(item->device), at, device);
	copy(item->name, sizeof(item->name), slash ? slash + 1 : at, slash ? key - device - 1 : key);
	return true;
}
