/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally_file.h: opening and mapping a file that another process writes, read-only.
 *
 * The owner must be root, the caller or the one that the options name. A symbolic link
 * is not followed, and only a regular file is opened. Nothing that the file contains is
 * trusted yet: the header that maps a file checks it.
 *
 * For the other headers, from any thread. Makes system calls; FT_ERR_SYSTEM leaves
 * their errno as it was.
 */
#ifndef FLOWTALLY_FILE_H
#define FLOWTALLY_FILE_H

#include "flowtally_layout.h"
#include "flowtally_result.h"
#include "flowtally_system.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ft_options {
	int trust_owner; /* accept files of owner too, beside root's and the caller's */
	uid_t owner;
} ft_options;

#ifndef FLOWTALLY_SHARED

/* FNV-1a 64 of n bytes, the checksum of a header. */
static inline uint64_t ft_checksum(const void *header, size_t n) {
	const unsigned char *p = (const unsigned char *)header;
	uint64_t sum = 0xcbf29ce484222325u;
	for (size_t i = 0; i < n; i++) sum = (sum ^ p[i]) * 0x100000001b3u;
	return sum;
}

static inline int ft_open_error(void) {
	switch (errno) {
	case ENOENT:
	case ENOTDIR: return FT_ERR_NO_FILE;
	case EACCES:
	case EPERM: return FT_ERR_PERMISSION;
	case ELOOP: return FT_ERR_LINK;
	default: return FT_ERR_SYSTEM;
	}
}

/* The name of a file that goes with the mirror at path: NAME and suffix for
 * NAME.mirror. To be freed; NULL: there is no memory. */
static inline char *ft_beside(const char *path, const char *suffix) {
	static const char mirror[] = ".mirror";
	const size_t length = strlen(path), cut = sizeof mirror - 1, room = strlen(suffix) + 1;
	const size_t stem = length >= cut && strcmp(path + length - cut, mirror) == 0 ? length - cut : length;
	char *name = (char *)malloc(stem + room);
	if (name == NULL) return NULL;
	memcpy(name, path, stem);
	memcpy(name + stem, suffix, room);
	return name;
}

/* Whether files of that owner are trusted to hold true numbers. */
static inline int ft_trusted(uid_t owner, const ft_options *options) {
	return owner == 0 || owner == geteuid() || (options && options->trust_owner && owner == options->owner);
}

/* Opens a regular file of at least least bytes whose owner is trusted. */
static inline int ft_open_file(const char *path, const ft_options *options, uint64_t least, int *fd, uint64_t *size) {
	/* Not blocking: the open of a FIFO must not wait for its writer. */
	*fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (*fd < 0) return ft_open_error();
	struct stat st;
	int err = FT_OK;
	if (fstat(*fd, &st) != 0)
		err = FT_ERR_SYSTEM;
	else if (!S_ISREG(st.st_mode))
		err = FT_ERR_NOT_FILE;
	else if (!ft_trusted(st.st_uid, options))
		err = FT_ERR_OWNER;
	else if ((uint64_t)st.st_size < least)
		err = FT_ERR_TRUNCATED;
	else
		*size = (uint64_t)st.st_size;
	if (err) {
		const int saved = errno;
		(void)close(*fd);
		*fd = -1;
		errno = saved;
	}
	return err;
}

/* Maps length bytes of a file, which covers them: a mapping of less raises SIGBUS. */
static inline int ft_map(int fd, uint64_t offset, uint64_t length, const unsigned char **base) {
	if (length > SIZE_MAX || (uint64_t)(off_t)offset != offset) return FT_ERR_MEMORY;
	void *at = mmap(NULL, (size_t)length, PROT_READ, MAP_SHARED, fd, (off_t)offset);
	if (at == MAP_FAILED) return FT_ERR_SYSTEM;
	*base = (const unsigned char *)at;
	return FT_OK;
}

static inline void ft_unmap(const unsigned char *base, size_t size) {
	const int saved = errno;
	(void)munmap((void *)(uintptr_t)base, size);
	errno = saved;
}

static inline void ft_close_file(int fd) {
	const int saved = errno;
	if (fd >= 0) (void)close(fd);
	errno = saved;
}

#endif /* FLOWTALLY_SHARED */

#ifdef __cplusplus
}
#endif

#endif /* FLOWTALLY_FILE_H */
