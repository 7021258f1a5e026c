/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally_file.h: mapping a file that somebody else writes, read-only.
 *
 * The owner must be root, oneself or whom the options name; a symbolic link is not
 * followed, nothing but a regular file is opened, and a file that is too short for
 * a header is refused. What it says is nobody's word yet: who maps it checks it.
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
	int trust_owner; /* accept files of owner too, beside root's and one's own */
	uid_t owner;
} ft_options;

/* FNV-1a of the bytes before a header's checksum. */
static inline uint64_t ft_checksum(const unsigned char *p, size_t n) {
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

/* Are the files of this user trusted to hold true numbers? */
static inline int ft_trusted(uid_t uid, const ft_options *options) {
	return uid == 0 || uid == geteuid() || (options && options->trust_owner && uid == options->owner);
}

/* Maps a file that is owned by somebody trusted and holds a header's page. */
static inline int ft_map(const char *path, const ft_options *options, int *fd, const unsigned char **base, size_t *size) {
	/* Not blocking: a fifo in the place of the file must not hang us. */
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
	else if (st.st_size < FT_HEADER_SIZE)
		err = FT_ERR_TRUNCATED;
	else if ((uint64_t)st.st_size > SIZE_MAX)
		err = FT_ERR_MEMORY;
	void *at = err ? MAP_FAILED : mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, *fd, 0);
	if (!err && at == MAP_FAILED) err = FT_ERR_SYSTEM;
	if (err) {
		const int saved = errno;
		(void)close(*fd);
		errno = saved;
		return err;
	}
	*base = (const unsigned char *)at;
	*size = (size_t)st.st_size;
	return FT_OK;
}

static inline void ft_unmap(int fd, const unsigned char *base, size_t size) {
	const int saved = errno;
	(void)munmap((void *)(uintptr_t)base, size);
	(void)close(fd);
	errno = saved;
}

#ifdef __cplusplus
}
#endif

#endif /* FLOWTALLY_FILE_H */
