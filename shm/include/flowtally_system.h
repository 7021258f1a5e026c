/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally_system.h: the reader's needs of the system: the declarations of POSIX and
 * Linux, and a clock.
 *
 * The other headers include this one first, so it is the place of the feature macro.
 * The macro has an effect only before the first header of the system. With -std=gnu11,
 * the default of gcc and clang, or with the library, the order does not matter.
 */
#ifndef FLOWTALLY_SYSTEM_H
#define FLOWTALLY_SYSTEM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* O_NOFOLLOW, O_CLOEXEC, clock_gettime, sigaction */
#endif

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/auxv.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#endif

#if !defined FLOWTALLY_SHARED && !(defined O_NOFOLLOW && defined MAP_ANONYMOUS && defined SA_SIGINFO)
#error "compile with -std=gnu11 or -D_GNU_SOURCE, or include flowtally.h before every header of the system"
#endif

/* FT_API stands before every function that a program calls. Without FLOWTALLY_SHARED it
 * makes them static inline: the headers are the whole reader. With FLOWTALLY_SHARED, which
 * flowtally.pc defines with --libs, the headers declare these functions and libflowtally.so, compiled
 * from the same headers, defines them. */
#ifdef FLOWTALLY_SHARED
#define FT_API extern
#elif !defined FT_API
#define FT_API static inline
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ns of CLOCK_MONOTONIC, which is the clock of every time in a mirror. By way of
 * the vDSO, so no system call. */
FT_API int64_t ft_now(void);

#ifndef FLOWTALLY_SHARED
FT_API int64_t ft_now(void) {
	struct timespec t;
	(void)clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail: the clock exists and t is ours */
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
#endif /* FLOWTALLY_SHARED */

#ifdef __cplusplus
}
#endif

#endif /* FLOWTALLY_SYSTEM_H */
