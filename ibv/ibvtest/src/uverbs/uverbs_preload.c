/* SPDX-License-Identifier: Apache-2.0
 *
 * uverbs_preload.c: the front end for LD_PRELOAD. It interposes the few calls by which libibverbs reaches the kernel.
 * The model lives in each process: a child that is executed has a fresh one.
 *
 * mmap is not interposed: the descriptor is the file's memfd. NETLINK_RDMA is refused, because an empty list of a kernel with
 * RDMA would hide the sysfs that the root names. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../verbs_soft.h"
#include "uverbs_core.h"

#define PUBLIC __attribute__((visibility("default")))

enum { FILES = 65536 };
static struct uv_file *files[FILES]; /* by descriptor, under the lock */
static struct uv_task self;

static struct uv_file *file_of(int fd)
{
	return fd >= 0 && fd < FILES ? __atomic_load_n(&files[fd], __ATOMIC_ACQUIRE) : NULL;
}

static int install(int fd) { return fd; }

/* The descriptor, or -1 with errno, or -2: not a device of uverbs. */
static int open_device(const char *path)
{
	struct uv_file *file;
	long number = path ? uv_device_path(path) : -1;
	if (number < 0)
		return -2;
	uv_lock();
	int err = uv_open(number, install, &file);
	int fd = err ? -1 : file->memory;
	if (!err && fd >= FILES) {
		uv_close(file);
		syscall(SYS_close, fd);
		err = EMFILE;
	} else if (!err) {
		__atomic_store_n(&files[fd], file, __ATOMIC_RELEASE);
	}
	uv_unlock();
	if (!err)
		return fd;
	errno = err;
	return -1;
}

#define OPENAT(name, path, flags, dir)                                                                               \
	va_list list;                                                                                                \
	va_start(list, flags);                                                                                       \
	int mode = (flags) & (O_CREAT | O_TMPFILE) ? va_arg(list, int) : 0;                                          \
	va_end(list);                                                                                                \
	int fd = open_device(path);                                                                                  \
	return fd == -2 ? (int)syscall(SYS_openat, dir, path, flags, mode) : fd;

PUBLIC int open(const char *path, int flags, ...) { OPENAT(open, path, flags, AT_FDCWD) }
PUBLIC int open64(const char *path, int flags, ...) { OPENAT(open64, path, flags, AT_FDCWD) }
PUBLIC int openat(int dir, const char *path, int flags, ...) { OPENAT(openat, path, flags, dir) }
PUBLIC int openat64(int dir, const char *path, int flags, ...) { OPENAT(openat64, path, flags, dir) }
PUBLIC int __open_2(const char *path, int flags) { return open(path, flags); }
PUBLIC int __open64_2(const char *path, int flags) { return open(path, flags); }

static int stat_of(int fd, struct stat *s)
{
	int err = uv_fstat(getpid(), fd, s);
	struct uv_file *file = file_of(fd);
	if (!err && file)
		uv_device_stat(file->device->number, s);
	return err;
}

PUBLIC int fstat(int fd, struct stat *s) { return stat_of(fd, s); }
PUBLIC int fstat64(int fd, struct stat64 *s) { return stat_of(fd, (struct stat *)s); }

/* libibverbs lists no device without its file. */
static int stat_path(const char *path, struct stat *s)
{
	long number = path ? uv_device_path(path) : -1;
	if (number < 0)
		return syscall(SYS_newfstatat, AT_FDCWD, path, s, 0);
	memset(s, 0, sizeof(*s));
	uv_device_stat(number, s);
	return 0;
}

PUBLIC int stat(const char *path, struct stat *s) { return stat_path(path, s); }
PUBLIC int stat64(const char *path, struct stat64 *s) { return stat_path(path, (struct stat *)s); }

/* libibverbs opens this socket first whenever it lists the devices. */
static void list_devices(void)
{
	uv_lock();
	struct uv_device *devices = uv_devices_read();
	if (verbs_call(NULL, "DEVICE_LIST"))
		uv_sysfs_hide();
	else
		uv_sysfs_show(devices);
	uv_unlock();
}

PUBLIC int socket(int domain, int type, int protocol)
{
	if (domain == AF_NETLINK && protocol == 20 /* NETLINK_RDMA */) {
		list_devices();
		errno = EPROTONOSUPPORT;
		return -1;
	}
	return syscall(SYS_socket, domain, type, protocol);
}

PUBLIC int ioctl(int fd, unsigned long cmd, ...)
{
	va_list list;
	va_start(list, cmd);
	uint64_t arg = va_arg(list, unsigned long);
	va_end(list);
	if (!file_of(fd))
		return syscall(SYS_ioctl, fd, cmd, arg);
	uv_lock();
	struct uv_file *file = file_of(fd);
	self.pid = getpid();
	int err = file ? uv_ioctl(file, &self, cmd, arg) : EBADF;
	uv_unlock();
	if (!err)
		return 0;
	errno = err;
	return -1;
}

/* For the shim (../shim), of a verb that makes no call of the kernel: counts and delays it, and returns 0 or the errno that
 * FAIL has for it. */
PUBLIC int uverbs_verb(const char *device, const char *verb);
int uverbs_verb(const char *device, const char *verb) { return verbs_call(device, verb); }
/* The shim is there. */
PUBLIC void uverbs_shimmed(void);
void uverbs_shimmed(void) { uv_shimmed_set(); }
/* Is the ability taken from the device? */
PUBLIC bool uverbs_without(const char *device, const char *ability);
bool uverbs_without(const char *device, const char *ability) { return verbs_without(device, ability); }

PUBLIC int close(int fd)
{
	if (file_of(fd)) {
		uv_lock();
		struct uv_file *file = file_of(fd);
		if (file) {
			__atomic_store_n(&files[fd], NULL, __ATOMIC_RELEASE);
			uv_close(file);
		}
		uv_unlock();
	}
	return syscall(SYS_close, fd);
}
