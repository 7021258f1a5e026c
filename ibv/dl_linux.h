/* SPDX-License-Identifier: Apache-2.0
 *
 * The common part of the tables of libibverbs and libmlx5: how a library is opened, and how its
 * results are returned. */
#ifndef FLOWTALLY_DL_LINUX_H
#define FLOWTALLY_DL_LINUX_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

struct ft_symbol {
	const char *name, *version;
	void *slot; /* of a function pointer; NULL is stored for a symbol that is absent */
	int required;
};

/* ft_dlopen opens path and stores n symbols. On failure it returns NULL and, in why, a
 * text of at most whylen bytes. A provider is libmlx5 or libefa: it may stay in memory. */
void *ft_dlopen(const char *path, int provider, const struct ft_symbol *symbols, size_t n, char *why, size_t whylen);

/* A call that fails to return an object should set errno; some do not. */
int ft_no_object(void);

/* A call that returns an int mostly returns the errno; some -1 with errno, some -errno.
 * errno is 0 before it. */
int ft_status(int rc);

#define CALL(call) (errno = 0, ft_status(call))

/* Returns from a wrapper with the object that call makes in *out. */
#define CREATE(out, call)                          \
	do {                                       \
		errno = 0;                         \
		void *made_ = (call);              \
		if (!made_) return ft_no_object(); \
		*(out) = (uintptr_t)made_;         \
		return 0;                          \
	} while (0)

#endif
