/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally_place.h: where the mirror of an instance is, by the rules of docs/place.md.
 *
 * /run/flowtally, /dev/shm/flowtally and $XDG_RUNTIME_DIR/flowtally are looked in, in this
 * order. The first mirror whose owner is trusted and whose writer is alive is the one; if
 * no writer is alive, the first whose owner is trusted.
 *
 * From any thread. Makes system calls and allocates; reads the environment.
 */
#ifndef FLOWTALLY_PLACE_H
#define FLOWTALLY_PLACE_H

#include "flowtally_status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FT_PATH_SIZE = 4096 };

/* Writes the path of the mirror of an instance (NULL: "default"). FT_ERR_NO_FILE: there
 * is none; another result: why the first file of that name cannot be used. */
FT_API int ft_locate(const char *instance, const ft_options *options, char *path, size_t size);

#ifndef FLOWTALLY_SHARED
/* Joins a directory and the file of an instance. 0: that is too long. */
static inline int ft_place(char *path, size_t size, const char *dir, const char *below, const char *name) {
	const char *parts[] = {dir, below, "/", name, ".mirror"};
	size_t at = 0;
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		const size_t n = strlen(parts[i]);
		if (n >= size - at) return 0;
		memcpy(path + at, parts[i], n + 1);
		at += n;
	}
	return 1;
}

/* Whether the directory of a path is one, and no link, of an owner who is trusted. */
static inline int ft_place_trusted(char *path, const ft_options *options) {
	struct stat st;
	char *slash = strrchr(path, '/');
	*slash = 0;
	const int found = lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
	*slash = '/';
	return found && ft_trusted(st.st_uid, options);
}

FT_API int ft_locate(const char *instance, const ft_options *options, char *path, size_t size) {
	const char *user = getenv("XDG_RUNTIME_DIR");
	const char *dirs[] = {"/run", "/dev/shm", user && user[0] == '/' ? user : NULL};
	const char *name = instance && instance[0] ? instance : "default";
	int dead = -1, broken = -1, why = FT_ERR_NO_FILE;
	if (strchr(name, '/') != NULL) return FT_ERR_ARGUMENT;
	for (int i = 0; i < 3; i++) {
		ft_reader r;
		ft_status s;
		if (dirs[i] == NULL || !ft_place(path, size, dirs[i], "/flowtally", name) || !ft_place_trusted(path, options)) continue;
		const int err = ft_open(&r, path, options);
		if (err == FT_ERR_NO_FILE) continue;
		if (err) {
			if (broken < 0) why = err;
			if (broken < 0) broken = i;
			continue;
		}
		const int alive = ft_get_status(&r, &s) == FT_OK && s.alive;
		ft_close(&r);
		if (alive) return FT_OK;
		if (dead < 0) dead = i;
	}
	return dead >= 0 && ft_place(path, size, dirs[dead], "/flowtally", name) ? FT_OK : why;
}
#endif /* FLOWTALLY_SHARED */

#ifdef __cplusplus
}
#endif

#endif /* FLOWTALLY_PLACE_H */
