/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally_result.h: the results of the reader's functions, and their texts.
 *
 * Every call that can go wrong returns a number of enum ft_result: FT_OK, a number
 * above 0 for news that is no failure, or a number below 0 for a failure. The reason
 * of FT_ERR_SYSTEM is in errno. Nothing is printed, and no process is ended.
 *
 * ft_strerror may be called from any thread, and from a signal handler.
 */
#ifndef FLOWTALLY_RESULT_H
#define FLOWTALLY_RESULT_H

#include "flowtally_system.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ft_result {
	FT_OK = 0,
	FT_EMPTY = 1,          /* no record of the history is new */
	FT_FOLLOWED = 2,       /* ft_follow opened another file: resolve handles again */
	FT_ERR_SYSTEM = -1,    /* a system call failed; errno says why */
	FT_ERR_NO_FILE = -2,   /* there is no such file */
	FT_ERR_PERMISSION = -3,
	FT_ERR_LINK = -4,      /* the path is a symbolic link */
	FT_ERR_NOT_FILE = -5,  /* not a regular file */
	FT_ERR_OWNER = -6,     /* the file is of an owner that is not trusted */
	FT_ERR_TRUNCATED = -7, /* shorter than it says or once was */
	FT_ERR_NOT_READY = -8, /* the writer has not finished making it */
	FT_ERR_MAGIC = -9,     /* not a mirror */
	FT_ERR_BYTE_ORDER = -10,
	FT_ERR_VERSION = -11,  /* a format that this reader does not know */
	FT_ERR_FEATURE = -12,  /* needs features that this reader does not know */
	FT_ERR_HEADER = -13,   /* a field of the header has no valid value */
	FT_ERR_CHECKSUM = -14,
	FT_ERR_STALE = -15,    /* the writer gave the file up: ft_follow */
	FT_ERR_NO_COUNTER = -16, /* no counter of that name or index */
	FT_ERR_GONE = -17,     /* the counter of this handle was removed */
	FT_ERR_BUSY = -18,     /* the writer changed it in each of 64 attempts */
	FT_ERR_CORRUPT = -19,  /* a word of the file breaks the format */
	FT_ERR_MEMORY = -20,
	FT_ERR_ARGUMENT = -21,
	FT_ERR_WORN = -22,     /* removals wore out the block: ft_load still tells */
	FT_ERR_NO_DEVICE = -23, /* no device writes this counter's words: flowtally_device.h */
	FT_ERR_TIMEOUT = -24,  /* from here on of flowtally_wait.h */
	FT_ERR_NOT_ALIVE = -25, /* the writer publishes no more */
	FT_ERR_COMPLETION = -26, /* a completion counter counted errors */
	FT_ERR_NO_WAKE = -27,  /* the writer wakes no waiters: they look */
	FT_ERR_NO_LIVE = -28,  /* the counter cannot be read live: flowtally_live.h */
	FT_ERR_NO_WORDS = -29, /* from here on of flowtally_words.h */
	FT_ERR_IN_USE = -30,   /* another program has the words, or they cool down */
	FT_ERR_MISSED = -31,   /* entries of the ring were lost before they were counted */
	FT_ERR_REPLY = -32     /* the other end of a socket sends no valid reply */
};

/* A text for people, of static storage; never NULL, whatever result is. */
FT_API const char *ft_strerror(int result);

#ifndef FLOWTALLY_SHARED
FT_API const char *ft_strerror(int result) {
	switch (result) {
	case FT_OK: return "ok";
	case FT_EMPTY: return "no new record";
	case FT_FOLLOWED: return "mirror: another file has the name, and is open now";
	case FT_ERR_SYSTEM: return "mirror: a system call failed, errno says why";
	case FT_ERR_NO_FILE: return "mirror: no such file; check the name, or start the writer (flowtally run)";
	case FT_ERR_PERMISSION: return "mirror: no permission; the file's mode, its directory's, and for waiting the group of NAME.wait decide";
	case FT_ERR_LINK: return "mirror: the path is a symbolic link, which is not followed";
	case FT_ERR_NOT_FILE: return "mirror: not a regular file";
	case FT_ERR_OWNER: return "mirror: its owner is not trusted; name the owner to trust it";
	case FT_ERR_TRUNCATED: return "mirror: the file is shorter than it says";
	case FT_ERR_NOT_READY: return "mirror: not ready yet; try again";
	case FT_ERR_MAGIC: return "mirror: not a flowtally mirror";
	case FT_ERR_BYTE_ORDER: return "mirror: written by a machine of another byte order";
	case FT_ERR_VERSION: return "mirror: a format version that this reader does not know; rebuild it with a newer flowtally.h";
	case FT_ERR_FEATURE: return "mirror: uses features that this reader does not know; rebuild it with a newer flowtally.h";
	case FT_ERR_HEADER: return "mirror: the header holds an impossible value";
	case FT_ERR_CHECKSUM: return "mirror: the header's checksum is wrong";
	case FT_ERR_STALE: return "mirror: its writer gave this file up; open the mirror again";
	case FT_ERR_NO_COUNTER: return "counter: no live counter has that name or index; flowtally get lists all counters";
	case FT_ERR_GONE: return "counter: removed; look its name up again";
	case FT_ERR_BUSY: return "mirror: changed while it was read, 64 times in a row";
	case FT_ERR_CORRUPT: return "a word breaks the format: of a mirror, run flowtally check; of a ring, report the device and its driver";
	case FT_ERR_MEMORY: return "out of memory";
	case FT_ERR_ARGUMENT: return "invalid argument";
	case FT_ERR_WORN: return "counter: too many were removed beside it for a snapshot to tell; read it alone";
	case FT_ERR_NO_DEVICE: return "counter: no device writes its words; read its value";
	case FT_ERR_TIMEOUT: return "counter: not reached in time";
	case FT_ERR_NOT_ALIVE: return "mirror: its writer ended; open it again";
	case FT_ERR_COMPLETION: return "counter: operations completed in error";
	case FT_ERR_NO_WAKE: return "mirror: its writer wakes no waiters; they look once per cycle";
	case FT_ERR_NO_LIVE: return "counter: cannot be read live; read its value, or set mirror.live_mode";
	case FT_ERR_NO_WORDS: return "words: the instance does not run, or none are reserved there; start it, and run flowtally queue-pairs reserve NAME, or name them under words in its configuration";
	case FT_ERR_IN_USE: return "words: another program has them, or they cool down after its end; try again";
	case FT_ERR_MISSED: return "words: entries of the ring were written over before they were counted; count more often than once in a round of the queue";
	case FT_ERR_REPLY: return "words: no valid reply came: the program at the other end of the socket is not flowtally, is of another version, hangs, or ended";
	default: return "unknown result";
	}
}
#endif /* FLOWTALLY_SHARED */

#ifdef __cplusplus
}
#endif

#endif /* FLOWTALLY_RESULT_H */
