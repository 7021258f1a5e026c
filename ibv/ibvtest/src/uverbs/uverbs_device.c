/* SPDX-License-Identifier: Apache-2.0
 *
 * uverbs_device.c: the devices that the environment names. FLOWTALLY_IBVTEST_DEVICES lists them as
 * NAME=NETDEV: the first is uverbs0. The beginning of a name is its driver: mlx5 or efa. */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "../nic.h"
#include "../verbs_soft.h"
#include "uverbs_core.h"

static const struct uv_driver *const drivers[] = {&mlx5_ib_driver, &efa_ib_driver};

/* The kernel's state, under the lock. */
static struct {
	struct uv_device *devices;
	char mutant[64], control[256], *said;
} kernel;

static bool shimmed;
void uv_shimmed_set(void) { __atomic_store_n(&shimmed, true, __ATOMIC_RELEASE); }
bool uv_shimmed(void) { return __atomic_load_n(&shimmed, __ATOMIC_ACQUIRE); }

struct uv_device *uv_devices(void) { return kernel.devices; }
bool uv_mutant(const char *name) { return *kernel.mutant && !strcmp(kernel.mutant, name); }

static void read_mac(struct uv_device *d)
{
	struct ifreq r = {0};
	int s = syscall(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (s < 0)
		return;
	memcpy(r.ifr_name, d->netdev, sizeof(d->netdev));
	if (!syscall(SYS_ioctl, s, SIOCGIFHWADDR, &r))
		memcpy(d->mac, r.ifr_hwaddr.sa_data, sizeof(d->mac));
	syscall(SYS_close, s);
}

static void add(struct uv_device **end, const struct verbs_item *item, unsigned number)
{
	struct uv_device *d;
	for (size_t i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++) {
		if (strncmp(item->name, drivers[i]->prefix, strlen(drivers[i]->prefix)) || !(d = calloc(1, sizeof(*d))))
			continue;
		d->driver = drivers[i];
		d->ops = drivers[i]->ops;
		d->number = number;
		snprintf(d->name, sizeof(d->name), "%s", item->name);
		snprintf(d->netdev, sizeof(d->netdev), "%.15s", item->value);
		*end = d;
		return;
	}
	fprintf(stderr, "uverbs: %s: no driver has this device\n", item->name);
}

/* Frees the devices: none has an open file. */
static void forget(void)
{
	for (struct uv_device *d; (d = kernel.devices); free(d)) {
		kernel.devices = d->next;
		if (d->nic)
			nic_close(d->nic);
		free(d->priv);
	}
}

/* The environment as one text, to see a change. */
static char *said(const struct verbs_environ *e, const char *mutant)
{
	char *text = NULL;
	if (asprintf(&text, "%s;%s;%s;%s;%s;%s;%s;%s", e->devices, e->fail, e->delay, e->without, e->statistics, e->comp_cntr_max,
		     e->comp_cntr_ops, mutant) < 0)
		return NULL;
	return text;
}

/* A line of the control FIFO (../verbs_control.c). */
static void obey(const char *word, const char *name)
{
	struct uv_device *d = kernel.devices;
	uv_lock();
	while (d && strcmp(d->name, name))
		d = d->next;
	if (!d)
		fprintf(stderr, "uverbs: control: %s %s: no such device\n", word, name);
	else if (!uv_device_obey(d, word))
		fprintf(stderr, "uverbs: control: %s is not a command\n", word);
	uv_unlock();
}

/* While a file is open, devices are only added. */
static void plug(void)
{
	struct verbs_environ e;
	struct verbs_item item;
	verbs_environ_load(&e);
	for (const char *list = e.devices; verbs_next_item(&list, &item);) {
		struct uv_device **end = &kernel.devices;
		unsigned number = 0;
		for (; *end && strcmp((*end)->name, item.name); end = &(*end)->next)
			number = (*end)->number + 1;
		if (!*end)
			add(end, &item, number);
	}
	verbs_environ_free(&e);
}

/* Reads the environment. If it changed, and no file is open, the kernel starts again by it. */
static void configure(void)
{
	struct verbs_environ e;
	struct verbs_item item;
	struct uv_device **end = &kernel.devices;
	unsigned number = 0;
	for (struct uv_device *d = kernel.devices; d; d = d->next)
		if (d->files)
			return plug();
	const char *mutant = secure_getenv("FLOWTALLY_IBVTEST_MUTANT");
	verbs_environ_load(&e);
	if (strcmp(e.control, kernel.control)) {
		snprintf(kernel.control, sizeof(kernel.control), "%s", e.control);
		uv_unlock(); /* the thread that ends may wait for it */
		verbs_control_configure(e.control, obey);
		uv_lock();
	}
	char *now = said(&e, mutant ? mutant : "");
	if (!now || (kernel.said && !strcmp(kernel.said, now))) {
		free(now);
		verbs_environ_free(&e);
		return;
	}
	free(kernel.said);
	kernel.said = now;
	forget();
	verbs_calls_configure(e.statistics, e.fail, e.delay, e.without);
	verbs_comp_cntr_configure(e.comp_cntr_max, e.comp_cntr_ops);
	for (const char *list = e.devices; verbs_next_item(&list, &item); number++) {
		add(end, &item, number);
		while (*end)
			end = &(*end)->next;
	}
	snprintf(kernel.mutant, sizeof(kernel.mutant), "%s", mutant ? mutant : "");
	verbs_environ_free(&e);
}

struct uv_device *uv_devices_read(void)
{
	configure();
	for (struct uv_device *d = kernel.devices; d; d = d->next)
		if (!d->files)
			read_mac(d);
	return kernel.devices;
}

int uv_device_nic(struct uv_device *device, struct nic **nic)
{
	int err = 0;
	if (!device->nic) {
		err = nic_open(device->netdev, &device->nic);
		if (!err && uv_mutant("loses_sent"))
			err = nic_misbehave(device->nic, NIC_LOSES_SENT);
		if (!err && uv_mutant("counts_every_port"))
			err = nic_misbehave(device->nic, NIC_COUNTS_EVERY_PORT);
	}
	*nic = device->nic;
	return err;
}

/* Adds the frames that the NIC lost since the last call to the statistic NIC_DROPS. */
void uv_device_note_drops(struct uv_device *device)
{
	if (!device->nic)
		return;
	uint64_t now = nic_drops(device->nic);
	if (now != device->drops)
		verbs_count("NIC_DROPS", now - device->drops);
	device->drops = now;
}

int uv_gate_unlocked(struct uv_call *call, const char *name)
{
	uv_unlock();
	int err = verbs_call(call->device->name, name);
	uv_lock();
	return call->file->closing ? EBADF : err;
}

long uv_device_path(const char *path)
{
	static const char prefix[] = "/dev/infiniband/uverbs";
	const char *digits = path + sizeof(prefix) - 1;
	char *end;
	if (strncmp(path, prefix, sizeof(prefix) - 1) || !isdigit((unsigned char)*digits))
		return -1;
	long number = strtol(digits, &end, 10);
	return *end ? -1 : number;
}

void uv_device_stat(unsigned number, struct stat *s)
{
	s->st_mode = S_IFCHR | 0666;
	s->st_rdev = makedev(IB_UVERBS_MAJOR, 192 + number);
}

int uv_open(unsigned number, int (*install_fd)(int), struct uv_file **file)
{
	configure();
	struct uv_device *d = kernel.devices;
	while (d && d->number != number)
		d = d->next;
	if (!d || d->removed)
		return ENXIO;
	if (!d->files)
		read_mac(d);
	struct uv_file *f = uv_file_new(d, install_fd);
	if (!f)
		return ENOMEM;
	f->memory = uv_memory_fd();
	if (f->memory < 0) {
		uv_close(f);
		return EMFILE;
	}
	*file = f;
	return 0;
}
