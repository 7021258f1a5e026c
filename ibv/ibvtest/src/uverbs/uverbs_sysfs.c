/* SPDX-License-Identifier: Apache-2.0
 *
 * uverbs_sysfs.c: a sysfs with the devices, for a libibverbs that runs on a host's own /sys. FLOWTALLY_IBVTEST_SYSFS names
 * a directory. Each process makes one of its own in it, and names it by SYSFS_PATH, where libibverbs looks. Who made the
 * directory removes it with what is in it, because programs in Go run no destructor. Without the variable libibverbs
 * reads /sys.
 *
 *     ROOT/class/infiniband_verbs/{abi_version,uverbs0/{ibdev,abi_version,dev,device -> ...}}
 *     ROOT/class/infiniband/mlx5_0/{node_type,node_guid,fw_ver}
 *     ROOT/class/infiniband/mlx5_0/device/{modalias,driver -> mlx5_core,net/v0}
 *     ROOT/class/infiniband/mlx5_0/ports/1/{state,link_layer,gids/0,gid_attrs/ndevs/0,gid_attrs/types/0} */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "uverbs_core.h"

enum { PATH = 800 };

/* What sysfs says of the devices of a driver. */
static const struct identity {
	const char *prefix, *driver, *modalias, *node_type, *link_layer;
} identities[] = {
	{"mlx5", "mlx5_core", "pci:v000015B3d00001019sv000015B3sd00000008bc02sc00i00", "1: CA", "Ethernet"},
	{"efa", "efa", "pci:v00001D0Fd0000EFA2sv00001D0Fsd0000EFA2bc02sc00i00", "0: <unknown>", "Unspecified"},
};

/* Under the lock, but for root, which is constant. */
static struct {
	char root[400];
	char *shown; /* the devices, as the tree names them */
} sysfs;

/* Before any thread: libibverbs reads SYSFS_PATH once. The directory itself is made when devices are listed, because most
 * processes list none. */
__attribute__((constructor)) static void choose(void)
{
	uint64_t number = 0;
	const char *base = secure_getenv("FLOWTALLY_IBVTEST_SYSFS");
	if (!base || *base != '/' || strlen(base) > 300 || getrandom(&number, sizeof(number), 0) != sizeof(number))
		return;
	snprintf(sysfs.root, sizeof(sysfs.root), "%s/%016llx", base, (unsigned long long)number);
	setenv("SYSFS_PATH", sysfs.root, 1);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static void remove_tree(void) { nftw(sysfs.root, remove_one, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT); }

/* Makes the directories above a file. Returns an errno. */
static int make_parents(char *path)
{
	for (char *at = path + strlen(sysfs.root); (at = strchr(at, '/')); at++) {
		*at = 0;
		int err = mkdir(path, 0755) && errno != EEXIST ? errno : 0;
		*at = '/';
		if (err)
			return err;
	}
	return 0;
}

/* Makes the directories for ROOT/class/FORMAT and returns its path, or NULL with errno. */
static const char *path_of(char path[PATH], const char *format, va_list list)
{
	int n = snprintf(path, PATH, "%s/class/", sysfs.root);
	vsnprintf(path + n, PATH - n, format, list);
	errno = make_parents(path);
	return errno ? NULL : path;
}

/* Writes text and a new line to ROOT/class/FORMAT. Returns an errno. */
__attribute__((format(printf, 2, 3))) static int fill(const char *text, const char *format, ...)
{
	char path[PATH];
	va_list list;
	va_start(list, format);
	int fd = path_of(path, format, list) ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644) : -1;
	va_end(list);
	if (fd < 0)
		return errno;
	int err = dprintf(fd, "%s\n", text) < 0 ? errno : 0;
	close(fd);
	return err;
}

/* Makes the link ROOT/class/FORMAT to target. Returns an errno. */
__attribute__((format(printf, 2, 3))) static int link_to(const char *target, const char *format, ...)
{
	char path[PATH];
	va_list list;
	va_start(list, format);
	int err = !path_of(path, format, list) || symlink(target, path) ? errno : 0;
	va_end(list);
	return err;
}

/* The interface of the port's GIDs: the bond of a slave, as roce_gid_mgmt.c of the kernel has it. */
static const char *gid_netdev(const struct uv_device *d, char bond[160])
{
	char path[96];
	snprintf(path, sizeof(path), "/sys/class/net/%s/bonding_slave/../master", d->netdev);
	ssize_t n = readlink(path, bond, 159);
	if (n <= 0)
		return d->netdev;
	bond[n] = 0;
	const char *name = strrchr(bond, '/');
	return name ? name + 1 : bond;
}

static int add(const struct uv_device *d)
{
	char text[128], bond[160];
	uint8_t gid[16];
	const struct identity *id = identities;
	while (strncmp(d->name, id->prefix, strlen(id->prefix)))
		id++; /* a device has a driver, and so one of the prefixes */
	unsigned n = d->number;
	int err = fill(d->name, "infiniband_verbs/uverbs%u/ibdev", n);
	err = err ? err : fill("1", "infiniband_verbs/uverbs%u/abi_version", n);
	snprintf(text, sizeof(text), "%d:%u", IB_UVERBS_MAJOR, 192 + n);
	err = err ? err : fill(text, "infiniband_verbs/uverbs%u/dev", n);
	err = err ? err : fill(id->modalias, "infiniband/%s/device/modalias", d->name);
	snprintf(text, sizeof(text), "../../infiniband/%s/device", d->name);
	err = err ? err : link_to(text, "infiniband_verbs/uverbs%u/device", n);
	uv_gid(d, gid);
	snprintf(text, sizeof(text), "%02x%02x:%02x%02x:%02x%02x:%02x%02x", gid[8], gid[9], gid[10], gid[11], gid[12], gid[13], gid[14],
		 gid[15]);
	err = err ? err : fill(id->node_type, "infiniband/%s/node_type", d->name);
	err = err ? err : fill(text, "infiniband/%s/node_guid", d->name);
	err = err ? err : fill("16.35.2000", "infiniband/%s/fw_ver", d->name);
	err = err ? err : fill("4: ACTIVE", "infiniband/%s/ports/1/state", d->name);
	err = err ? err : fill(id->link_layer, "infiniband/%s/ports/1/link_layer", d->name);
	memmove(text + 20, text, 20);
	memcpy(text, "fe80:0000:0000:0000:", 20);
	err = err ? err : fill(text, "infiniband/%s/ports/1/gids/0", d->name);
	err = err ? err : fill("RoCE v2", "infiniband/%s/ports/1/gid_attrs/types/0", d->name);
	err = err ? err : fill(gid_netdev(d, bond), "infiniband/%s/ports/1/gid_attrs/ndevs/0", d->name);
	err = err ? err : fill("0", "infiniband/%s/device/net/%s/dev_port", d->name, d->netdev);
	return err ? err : link_to(id->driver, "infiniband/%s/device/driver", d->name);
}

/* The devices that are listed, as one text. */
static char *text_of(const struct uv_device *devices)
{
	char *text = NULL, bond[160];
	size_t size;
	FILE *f = open_memstream(&text, &size);
	if (!f)
		return NULL;
	for (const struct uv_device *d = devices; d; d = d->next)
		if (!d->unlisted)
			fprintf(f, "%u %s=%s %s %02x%02x%02x\n", d->number, d->name, d->netdev, gid_netdev(d, bond), d->mac[3], d->mac[4],
				d->mac[5]);
	fclose(f);
	return text;
}

void uv_sysfs_show(const struct uv_device *devices)
{
	if (!*sysfs.root)
		return;
	char *text = text_of(devices);
	if (!text || (sysfs.shown && !strcmp(text, sysfs.shown))) {
		free(text);
		return;
	}
	free(sysfs.shown);
	sysfs.shown = text;
	remove_tree();
	int err = fill("6", "infiniband_verbs/abi_version");
	for (const struct uv_device *d = devices; d && !err; d = d->next)
		if (!d->unlisted)
			err = add(d);
	if (err)
		fprintf(stderr, "uverbs: %s: naming the devices: %s\n", sysfs.root, strerror(err));
}

void uv_sysfs_hide(void)
{
	free(sysfs.shown);
	sysfs.shown = NULL;
	if (*sysfs.root)
		remove_tree();
}
