/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_list.c: the list of devices, which also configures the library, and the library's end. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nic_device.h"
#include "verbs_data.h"
#include "verbs_kernel.h"

/* A line of the control FIFO (verbs_control.c). */
static void obey(const char *word, const char *name)
{
	bool known = false;
	verbs_table_lock();
	for (struct soft_device *d = verbs_table(); d; d = d->next) {
		if (strcmp(d->device.name, name))
			continue;
		known = true;
		if (!verbs_kernel_obey(d, word))
			fprintf(stderr, "ibvtest: control: %s is not a command\n", word);
		if (!strcmp(word, "remove") || !strcmp(word, "return"))
			d->removed = word[2] == 'm';
	}
	verbs_table_unlock();
	if (!known)
		fprintf(stderr, "ibvtest: control: %s %s: no such device\n", word, name);
}

VERBS_PUBLIC struct ibv_device **ibv_get_device_list(int *num)
{
	struct verbs_environ e;
	struct verbs_item item;
	size_t n = 0;
	verbs_environ_load(&e);
	verbs_control_configure(e.control, obey);
	verbs_table_lock();
	verbs_calls_configure(e.statistics, e.fail, e.delay, e.without);
	verbs_comp_cntr_configure(e.comp_cntr_max, e.comp_cntr_ops);
	int err = verbs_call(NULL, "ibv_get_device_list");
	const char *list = e.devices;
	struct ibv_device **devices = calloc(strlen(e.devices) / 2 + 2, sizeof(*devices));
	if (!devices)
		err = ENOMEM;
	for (struct soft_device *d = err ? NULL : verbs_table(); d; d = d->next)
		d->listed = false;
	while (!err && verbs_next_item(&list, &item)) {
		struct soft_device *d = verbs_device_find(item.name, item.value);
		if (!d)
			continue;
		d->device._ops._dummy1 = (void *)ibvtest_device_ops; /* how libmlx5 knows it: nic_device.h */
		if (d->removed)
			verbs_device_unref(d);
		else
			devices[n++] = &d->device;
	}
	if (!err)
		verbs_table_forget();
	verbs_table_unlock();
	verbs_environ_free(&e);
	if (num)
		*num = (int)n;
	if (!err)
		return devices;
	free(devices);
	errno = err;
	return NULL;
}

VERBS_PUBLIC void ibv_free_device_list(struct ibv_device **list)
{
	if (!list)
		return;
	verbs_table_lock();
	for (size_t i = 0; list[i]; i++)
		verbs_device_unref((struct soft_device *)list[i]);
	verbs_table_unlock();
	free(list);
}

__attribute__((destructor)) static void unload(void)
{
	verbs_control_close();
	verbs_wire_close();
	verbs_table_clear();
	verbs_calls_close();
	verbs_sysfs_close();
}
