/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally.h: a reader of flowtally's mirror in C11 and C++17, in headers alone.
 *
 * The mirror is a file on a tmpfs in which one writer shows the values of its
 * counters. A reader maps it read-only and reads without a system call, a lock
 * or an allocation. The format is specified in docs/mirror-format.md; these
 * headers follow it and nothing else.
 *
 *     ft_reader r;
 *     ft_named web;
 *     ft_value v;
 *     int err = ft_open_instance(&r, "default", NULL);
 *     if (!err) err = ft_named_open(&r, "web", &web);
 *     if (!err) err = ft_named_load(&r, &web, &v);
 *     if (err) fprintf(stderr, "web: %s\n", ft_strerror(err));
 *
 * To use them, copy the directory or point the compiler at it; "make install" puts
 * them where pkg-config finds them, and libflowtally.so beside, which holds the same
 * functions for other languages (FT_API in flowtally_system.h). This header includes
 * the headers for reading values:
 *
 *   _reader.h     ft_open, ft_attach, ft_close: a mirror by its path
 *   _place.h      ft_locate: the path of an instance
 *   _follow.h     ft_open_instance, ft_follow, ft_named_open, _load: by name, over files
 *   _catalogue.h  ft_lookup, ft_capacity, ft_get_entry, ft_list_again: names, handles, entries
 *   _counter.h    ft_counter_open, ft_load: one counter, on a hot path
 *   _snapshot.h   ft_snapshot_open, _take, _get, _close: many at once
 *   _history.h    ft_cursor_open, ft_cursor_next: the records of the history
 *   _status.h     ft_get_status, ft_poll_period, ft_state_name: the writer
 *   _guard.h      ft_guard_sigbus: a file that is cut short
 *   _result.h     the results of functions, ft_strerror
 *   _system.h     ft_now; _header.h and _file.h open files, _order.h loads words,
 *                 _layout.h has offsets
 *
 * To be included beside it: flowtally_wait.h sleeps until a counter has reached a
 * count, flowtally_device.h reads the words that a device writes by itself,
 * flowtally_live.h reads counters where the kernel counts them, flowtally_words.h feeds
 * a counter from the program's own queue pairs, and flowtally_ring.h counts their
 * completion queue.
 *
 * Promises; each header begins with how it keeps its part
 *
 *   - A value is a consistent triple (packets, bytes, sampled-at) whatever the
 *     writer does, kill -9 included. sampled_at 0: never sampled, which is not 0.
 *   - A mirror that grows needs no call: handles, counters and snapshots go on.
 *   - Nothing that the writer does, or leaves undone, blocks or hangs a reader:
 *     every loop has a bound, and ends in FT_ERR_BUSY.
 *   - No content of the file leads a reader outside its mappings: the fixed part of
 *     the header is copied once and checked, and every offset is a product of bounded
 *     numbers.
 *   - A handle names one counter for ever. A slot that was given to another
 *     counter is never read in its name: FT_ERR_GONE.
 *   - A file that its writer gave up is never read as if it were current: FT_ERR_STALE.
 *   - Every failure is a named code with a text; nothing is printed, no process
 *     is ended, no signal handler installed (but by ft_guard_sigbus).
 *
 * Threads: an ft_reader may be used by any number of threads. An ft_counter, an
 * ft_cursor and an ft_snapshot each belong to one thread at a time. They borrow
 * from the reader: close them, or stop using them, before ft_close.
 *
 * Memory order: flowtally_order.h; it does not lean on x86.
 *
 * POSIX and Linux: compile with -std=gnu11. With -std=c11 include flowtally.h before
 * every header of the system, or add -D_GNU_SOURCE.
 */
#ifndef FLOWTALLY_H
#define FLOWTALLY_H

#include "flowtally_catalogue.h"
#include "flowtally_counter.h"
#include "flowtally_follow.h"
#include "flowtally_guard.h"
#include "flowtally_history.h"
#include "flowtally_layout.h"
#include "flowtally_order.h"
#include "flowtally_place.h"
#include "flowtally_reader.h"
#include "flowtally_result.h"
#include "flowtally_snapshot.h"
#include "flowtally_status.h"

#endif /* FLOWTALLY_H */
