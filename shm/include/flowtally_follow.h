/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally_follow.h: opening a mirror and its counters by name, and following them over
 * restarts of the writer and over files made anew.
 *
 *     ft_reader r;
 *     ft_named web;
 *     ft_value v;
 *     int err = ft_open_instance(&r, "lb", NULL);
 *     if (!err) err = ft_named_open(&r, "web", &web);
 *     for (;;) {
 *         (void)ft_follow(&r);                  once a second, and at FT_ERR_STALE
 *         err = ft_named_load(&r, &web, &v);    as often as values are wanted
 *     }
 *
 * Growth needs no call, and a writer that restarts continues with the same file. ft_follow
 * is for a file made anew, for example after somebody removed it. The writer marks the old
 * file if it can (FT_ERR_STALE). If it could not, ft_follow sees that another inode has
 * the name. Until then values do not change, and their sample times grow old.
 *
 * Like ft_open, ft_follow must not run while another thread uses r. Comparing inodes is
 * safe, because r keeps its file open, so no other file can get the same inode.
 */
#ifndef FLOWTALLY_FOLLOW_H
#define FLOWTALLY_FOLLOW_H

#include "flowtally_counter.h"
#include "flowtally_place.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A counter by its name. Use it from one thread at a time, with the reader it was opened
 * with. Fields are private. */
typedef struct ft_named {
	char name[64];
	ft_counter counter;
	uint64_t turn; /* the reader's turn when the name was found; 0: not found */
} ft_named;

/* Opens the mirror of an instance (NULL: "default") where ft_locate finds it. */
FT_API int ft_open_instance(ft_reader *r, const char *instance, const ft_options *options);

/* Opens the file that has the name of r now, unless it is the open one. FT_OK: it is.
 * FT_FOLLOWED: r is of another file now. Do not use older counters, snapshots, cursors and
 * handles any more; an ft_named keeps working. Below 0: r is as it was. FT_ERR_STALE: the
 * file was given up, and no other has its name yet. */
FT_API int ft_follow(ft_reader *r);

/* FT_ERR_NO_COUNTER: no live counter has the name. *out is usable all the same, because
 * ft_named_load looks again. FT_ERR_ARGUMENT: no counter can have that name. */
FT_API int ft_named_open(const ft_reader *r, const char *name, ft_named *out);
/* Like ft_load. It looks the name up again in another file, and after the counter that
 * had it was removed. */
FT_API int ft_named_load(const ft_reader *r, ft_named *n, ft_value *out);

#ifndef FLOWTALLY_SHARED
FT_API int ft_open_instance(ft_reader *r, const char *instance, const ft_options *options) {
	char path[FT_PATH_SIZE];
	ft_none(r);
	int err = ft_locate(instance, options, path, sizeof path);
	if (!err) err = ft_open(r, path, options);
	if (!err && (r->instance = ft_copy_string(instance ? instance : "")) == NULL) {
		ft_close(r);
		err = FT_ERR_MEMORY;
	}
	return err;
}

static inline int ft_same_file(const struct stat *a, const struct stat *b) {
	return a->st_ino == b->st_ino && a->st_dev == b->st_dev;
}

FT_API int ft_follow(ft_reader *r) {
	struct stat here, there;
	ft_status s;
	ft_reader next;
	if (r->path == NULL) return FT_ERR_ARGUMENT;
	if (fstat(r->fd, &here) != 0) return FT_ERR_SYSTEM;
	const int named = lstat(r->path, &there) == 0 && ft_same_file(&here, &there);
	/* An instance whose writer is not alive may have one in another directory. */
	if (named && (r->instance == NULL || (ft_get_status(r, &s) == FT_OK && s.alive))) return ft_still(r);
	int err = r->instance ? ft_open_instance(&next, r->instance, &r->options) : ft_open(&next, r->path, &r->options);
	if (err) return err == FT_ERR_NO_FILE && ft_still(r) ? ft_still(r) : err;
	if (fstat(next.fd, &there) != 0) err = FT_ERR_SYSTEM;
	const int same = !err && ft_same_file(&here, &there);
	if (same) err = ft_still(r);
	if (same || err) {
		ft_close(&next);
		return err;
	}
	next.turn = r->turn + 1;
	ft_close(r);
	*r = next;
	return FT_FOLLOWED;
}

/* Looks the name up in the file that is open. */
static inline int ft_named_find(const ft_reader *r, ft_named *n) {
	ft_handle h;
	n->turn = 0;
	int err = ft_lookup(r, n->name, &h);
	if (!err) err = ft_counter_open(r, h, &n->counter);
	if (!err) n->turn = r->turn;
	return err;
}

FT_API int ft_named_open(const ft_reader *r, const char *name, ft_named *out) {
	const size_t length = strlen(name);
	memset(out, 0, sizeof *out);
	if (length == 0 || length >= sizeof out->name) return FT_ERR_ARGUMENT;
	memcpy(out->name, name, length);
	return ft_named_find(r, out);
}

FT_API int ft_named_load(const ft_reader *r, ft_named *n, ft_value *out) {
	int err = n->turn == r->turn ? ft_load(&n->counter, out) : FT_ERR_GONE;
	if (err != FT_ERR_GONE) return err;
	err = ft_named_find(r, n);
	return err ? err : ft_load(&n->counter, out);
}
#endif /* FLOWTALLY_SHARED */

#ifdef __cplusplus
}
#endif

#endif /* FLOWTALLY_FOLLOW_H */
