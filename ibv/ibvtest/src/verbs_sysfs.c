/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_sysfs.c: a directory in the shape of /sys/class/infiniband, as far as programs look for a
 * device's netdev, driver and state there:
 *
 *     ROOT/uverbs0/swnic0/{node_type,node_guid,fw_ver}
 *     ROOT/uverbs0/swnic0/device/{driver-name, driver -> ibvtest, net/v0}
 *     ROOT/uverbs0/swnic0/ports/1/{state,link_layer,gids/0,gid_attrs/ndevs/0,gid_attrs/types/0}
 *     ROOT/calls      the call statistics, unless FLOWTALLY_IBVTEST_STATISTICS is set
 *
 * The level between is one per device: several devices may have one name, an old one that a
 * context still has beside the new one.
 *
 * ROOT is one new directory per loaded library, below $TMPDIR or /tmp, and is removed when the
 * library is unloaded. A process that ends without unloading leaves its directory. Each new
 * process removes directories whose lock is free. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "verbs_soft.h"

#define PREFIX "flowtally-ibvtest."

/* Under the table's lock. */
static struct {
	char path[160];
	int fd; /* locked as long as the library is loaded */
} root = {.fd = -1};

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static void remove_tree(const char *path)
{
	nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* Removes the directories that dead processes of this user left. */
static void sweep(const char *base)
{
	char path[600];
	struct dirent *e;
	struct stat st;
	DIR *dir = opendir(base);
	if (!dir)
		return;
	while ((e = readdir(dir))) {
		if (strncmp(e->d_name, PREFIX, strlen(PREFIX)))
			continue;
		snprintf(path, sizeof(path), "%s/%s", base, e->d_name);
		int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (!fstat(fd, &st) && st.st_uid == geteuid() && !flock(fd, LOCK_EX | LOCK_NB))
			remove_tree(path);
		close(fd);
	}
	closedir(dir);
}

const char *verbs_sysfs_root(void)
{
	if (root.fd >= 0)
		return root.path;
	const char *base = secure_getenv("TMPDIR");
	if (!base || *base != '/' || strlen(base) > 100)
		base = "/tmp";
	sweep(base);
	/* Another process may sweep the directory away before it is locked: then another. */
	for (int tries = 0; tries < 8; tries++) {
		struct stat named, locked;
		snprintf(root.path, sizeof(root.path), "%s/" PREFIX "XXXXXX", base);
		if (!mkdtemp(root.path))
			return NULL;
		root.fd = open(root.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (root.fd < 0)
			continue;
		if (!flock(root.fd, LOCK_EX) && !stat(root.path, &named) && !fstat(root.fd, &locked) &&
		    named.st_ino == locked.st_ino) {
			fchmod(root.fd, 0755); /* as sysfs: readable for every user */
			return root.path;
		}
		close(root.fd);
		root.fd = -1;
	}
	return NULL;
}

static int make(const char *base, const char *path)
{
	char full[512];
	snprintf(full, sizeof(full), "%s/%s", base, path);
	return mkdir(full, 0755) && errno != EEXIST ? errno : 0;
}

static int fill(const char *base, const char *path, const char *text)
{
	char full[512];
	snprintf(full, sizeof(full), "%s/%s", base, path);
	int fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0)
		return errno;
	int err = dprintf(fd, "%s\n", text) < 0 ? errno : 0;
	close(fd);
	return err;
}

int verbs_sysfs_ndev(struct soft_device *d)
{
	char path[96], bond[160] = "";
	snprintf(path, sizeof(path), "/sys/class/net/%s/bonding_slave/../master", d->netdev);
	const char *name = readlink(path, bond, sizeof(bond) - 1) > 0 ? strrchr(bond, '/') : NULL;
	return fill(d->device.ibdev_path, "ports/1/gid_attrs/ndevs/0", name ? name + 1 : d->netdev);
}

/* Fills device.{dev_name,dev_path,ibdev_path} too. Returns an errno. */
int verbs_sysfs_add(struct soft_device *d, unsigned number)
{
	static const char *const directories[] = {"",	     "device",	   "device/net",	"ports",
						  "ports/1", "ports/1/gids", "ports/1/gid_attrs", "ports/1/gid_attrs/ndevs",
						  "ports/1/gid_attrs/types"};
	char text[64], gid[96], net[64];
	const char *at = verbs_sysfs_root();
	if (!at)
		return errno;
	char *base = d->device.ibdev_path;
	snprintf(d->device.dev_name, sizeof(d->device.dev_name), "uverbs%u", number);
	snprintf(d->device.dev_path, sizeof(d->device.dev_path), "%.150s/%.30s", at, d->device.dev_name);
	snprintf(base, sizeof(d->device.ibdev_path), "%.180s/%s", d->device.dev_path, d->device.name);
	int err = mkdir(d->device.dev_path, 0755) ? errno : 0;
	for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]) && !err; i++)
		err = make(base, directories[i]);
	snprintf(net, sizeof(net), "device/net/%s", d->netdev);
	const uint8_t *m = d->kernel.mac;
	snprintf(text, sizeof(text), "%02x%02x:%02xff:fe%02x:%02x%02x", m[0] ^ 2, m[1], m[2], m[3], m[4], m[5]);
	snprintf(gid, sizeof(gid), "fe80:0000:0000:0000:%s", text);
	err = err ? err : make(base, net);
	err = err ? err : fill(base, "node_type", "1: CA");
	err = err ? err : fill(base, "node_guid", text);
	err = err ? err : fill(base, "fw_ver", "0.1.0");
	err = err ? err : fill(base, "device/driver-name", VERBS_DRIVER);
	err = err ? err : fill(base, "ports/1/state", "4: ACTIVE");
	err = err ? err : fill(base, "ports/1/link_layer", "Ethernet");
	err = err ? err : fill(base, "ports/1/gids/0", gid);
	err = err ? err : verbs_sysfs_ndev(d);
	err = err ? err : fill(base, "ports/1/gid_attrs/types/0", "RoCE v2");
	char driver[512];
	snprintf(driver, sizeof(driver), "%s/device/driver", base);
	if (!err && symlink(VERBS_DRIVER, driver) && errno != EEXIST)
		err = errno;
	return err;
}

void verbs_sysfs_remove(struct soft_device *d)
{
	remove_tree(d->device.dev_path);
}

void verbs_sysfs_close(void)
{
	if (root.fd < 0)
		return;
	remove_tree(root.path);
	close(root.fd);
	root.fd = -1;
}
