/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_device.c: the table of devices, and the verbs over one of them.
 *
 * A device is one netdev of one network namespace under one name. The netdev is identified by
 * index and address, since a namespace's inode and its indices are reused. The device stays in
 * the table, with its directory, as long as FLOWTALLY_IBVTEST_DEVICES names it, so that the paths
 * of a freed list (ibdev_path) stay valid, as they do with sysfs. Its descriptors are open only
 * while a list or a context refers to it: they would keep the namespace alive. */
#include <fcntl.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "verbs_kernel.h"

static struct {
	pthread_mutex_t lock;
	struct soft_device *first;
	unsigned made;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

void verbs_table_lock(void)
{
	pthread_mutex_lock(&table.lock);
}

void verbs_table_unlock(void)
{
	pthread_mutex_unlock(&table.lock);
}

struct soft_device *verbs_table(void)
{
	return table.first;
}

static void free_device(struct soft_device *d)
{
	verbs_sysfs_remove(d);
	free(d->kernel.priv);
	free(d);
}

void verbs_device_unref(struct soft_device *d)
{
	if (--d->refs)
		return;
	close(d->socket);
	if (d->netns_fd >= 0)
		close(d->netns_fd);
	d->socket = d->netns_fd = -1;
	if (d->listed)
		return;
	for (struct soft_device **at = &table.first; *at; at = &(*at)->next)
		if (*at == d) {
			*at = d->next;
			break;
		}
	free_device(d);
}

/* In the namespace of the device, whatever thread calls. */
static bool flags_of(int socket, const char *netdev, short *flags)
{
	struct ifreq r = {0};
	memcpy(r.ifr_name, netdev, IFNAMSIZ);
	if (ioctl(socket, SIOCGIFFLAGS, &r))
		return false;
	*flags = r.ifr_flags;
	return true;
}

bool verbs_device_linked(struct soft_device *d)
{
	short flags;
	return flags_of(d->socket, d->netdev, &flags) && (flags & IFF_UP) && (flags & IFF_RUNNING);
}

struct soft_device *verbs_device_find(const char *name, const char *netdev)
{
	struct stat ns = {0};
	struct ifreq index = {0}, address = {0};
	struct soft_device *d = NULL;
	if (strlen(netdev) >= IFNAMSIZ || strlen(name) >= sizeof(d->device.name))
		return NULL;
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int ns_fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	if (ns_fd >= 0)
		fstat(ns_fd, &ns);
	memcpy(index.ifr_name, netdev, strlen(netdev));
	memcpy(address.ifr_name, netdev, strlen(netdev));
	if (s < 0 || ioctl(s, SIOCGIFINDEX, &index) || ioctl(s, SIOCGIFHWADDR, &address))
		goto out;
	for (d = table.first; d; d = d->next)
		if (!strcmp(d->device.name, name) && !strcmp(d->netdev, netdev) && d->netns == ns.st_ino &&
		    d->ifindex == (unsigned)index.ifr_ifindex &&
		    !memcmp(d->kernel.mac, address.ifr_hwaddr.sa_data, sizeof(d->kernel.mac)))
			break;
	if (!d) {
		d = calloc(1, sizeof(*d));
		if (!d)
			goto out;
		strcpy(d->device.name, name);
		strcpy(d->netdev, netdev);
		verbs_kernel_name(d);
		d->device.node_type = IBV_NODE_CA;
		d->device.transport_type = IBV_TRANSPORT_IB;
		d->netns = ns.st_ino;
		d->ifindex = index.ifr_ifindex;
		memcpy(d->kernel.mac, address.ifr_hwaddr.sa_data, sizeof(d->kernel.mac));
		d->netns_fd = d->socket = -1;
		int err = verbs_sysfs_add(d, table.made++);
		if (err) {
			fprintf(stderr, "ibvtest: %s: making its directory: %s\n", name, strerror(err));
			free_device(d);
			d = NULL;
			goto out;
		}
		d->next = table.first;
		table.first = d;
	}
	verbs_sysfs_ndev(d);
	d->listed = true;
	if (!d->refs++) {
		d->socket = s;
		d->netns_fd = ns_fd;
		s = ns_fd = -1;
	}
out:
	if (s >= 0)
		close(s);
	if (ns_fd >= 0)
		close(ns_fd);
	return d;
}

void verbs_table_forget(void)
{
	for (struct soft_device **at = &table.first; *at;) {
		struct soft_device *d = *at;
		if (d->listed || d->refs) {
			at = &d->next;
			continue;
		}
		*at = d->next;
		free_device(d);
	}
}

VERBS_PUBLIC const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

/* EUI-64 of the netdev's address, big endian. */
VERBS_PUBLIC uint64_t ibv_get_device_guid(struct ibv_device *device)
{
	union ibv_gid gid;
	uv_gid(&((struct soft_device *)device)->kernel, gid.raw);
	return gid.global.interface_id;
}

void verbs_table_clear(void)
{
	verbs_table_lock();
	while (table.first) {
		struct soft_device *d = table.first;
		table.first = d->next;
		if (!d->refs)
			free_device(d);
	}
	verbs_table_unlock();
}
