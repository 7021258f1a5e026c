/* SPDX-License-Identifier: Apache-2.0
 *
 * uverbs_memory.c: the memory of the caller, and the pages that the model shares with it. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "uverbs_core.h"

int uv_copy_from_user(const struct uv_task *task, void *to, uint64_t from, size_t n)
{
	struct iovec l = {to, n}, r = {(void *)(uintptr_t)from, n};
	if (task->own && n)
		memcpy(l.iov_base, r.iov_base, n);
	return task->own || !n || process_vm_readv(task->pid, &l, 1, &r, 1, 0) == (ssize_t)n ? 0 : EFAULT;
}

int uv_copy_to_user(const struct uv_task *task, uint64_t to, const void *from, size_t n)
{
	struct iovec l = {(void *)(uintptr_t)from, n}, r = {(void *)(uintptr_t)to, n};
	if (task->own && n)
		memcpy(r.iov_base, l.iov_base, n);
	return task->own || !n || process_vm_writev(task->pid, &l, 1, &r, 1, 0) == (ssize_t)n ? 0 : EFAULT;
}

bool uv_capable(const struct uv_task *task, int capability)
{
	struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, task->own ? 0 : task->pid}; /* 0: this thread */
	struct __user_cap_data_struct d[2];
	return task->pid && !syscall(SYS_capget, &h, d) && d[capability / 32].effective & (1u << capability % 32);
}

/* uv_memory_fd makes the descriptor that stands for the character device: a sparse memfd of 4 TiB, so that mmap(2)
 * works at any key and shares its pages with the model. */
int uv_memory_fd(void)
{
	int fd = memfd_create("uverbs", MFD_CLOEXEC);
	if (fd >= 0 && ftruncate(fd, 1ll << 42)) {
		close(fd);
		return -1;
	}
	return fd;
}

struct uv_mapping {
	uint64_t key;
	size_t size;
	void *at;
	struct uv_mapping *next;
};

int uv_mmap_insert(struct uv_file *file, size_t size, uint64_t *key, void **at)
{
	size_t page = sysconf(_SC_PAGESIZE);
	struct uv_mapping *m = malloc(sizeof(*m));
	if (!m)
		return ENOMEM;
	m->size = (size + page - 1) & ~(page - 1);
	m->key = file->next_key;
	m->at = mmap(NULL, m->size, PROT_READ | PROT_WRITE, MAP_SHARED, file->memory, m->key);
	if (m->at == MAP_FAILED) {
		free(m);
		return ENOMEM;
	}
	file->next_key += m->size; /* a key is never given twice: a stale mapping of the caller's hits nothing */
	m->next = file->mappings;
	file->mappings = m;
	*key = uv_mutant("zero_mmap_key") ? 0 : m->key;
	*at = m->at;
	return 0;
}

void uv_mmap_remove(struct uv_file *file, uint64_t key)
{
	for (struct uv_mapping **p = &file->mappings, *m; (m = *p); p = &m->next) {
		if (m->key != key)
			continue;
		*p = m->next;
		munmap(m->at, m->size);
		free(m);
		return;
	}
}

void uv_mappings_close(struct uv_file *file)
{
	while (file->mappings)
		uv_mmap_remove(file, file->mappings->key);
}
