/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally_place.h: finding the mirror of an instance by the instance's name.
 *
 * docs/mirror-format.md specifies the rule: the first mirror of a trusted owner whose writer is
 * alive, in /run/flowtally, /dev/shm/flowtally and $XDG_RUNTIME_DIR/flowtally, and
 * the first of a trusted owner if no writer is alive. So the file of a dead writer hides
 * no live one, and no other user can put a file before it.
 *
 * From any thread, as long as no other changes the environment. Makes system calls
 * and allocates.
 */
#ifndef FLOWTALLY_PLACE_H
#define FLOWTALLY_PLACE_H

#include "flowtally_reader.h"
#include "flowtally_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The largest size of a path. */
enum { FT_PATH_SIZE = 4096 };

/* Stores the path of the mirror of an instance, for ft_open with the same options, and
 * returns FT_OK. instance may be NULL or "": "default"; options may be NULL. If no
 * mirror can be opened, it is the path of the first file of this name: ft_open returns
 * why. FT_ERR_NO_FILE: no such file exists. FT_ERR_OWNER, FT_ERR_LINK or
 * FT_ERR_NOT_FILE: no such file exists, but perhaps in a directory whose owner is not
 * trusted, that is a symbolic link or that is no directory. FT_ERR_ARGUMENT: instance
 * contains a slash, or size is too small; FT_PATH_SIZE is always enough. */
FT_API int ft_locate(const char *instance, const ft_options *options, char *path, size_t size);

#ifndef FLOWTALLY_SHARED
/* Stores base, under and name and ".mirror" one behind another. */
static inline int ft_place_join(char *path, size_t size, const char *base, const char *under, const char *name) {
	const char *part[] = {base, under, name, name[0] == '\0' ? "" : ".mirror"};
	size_t used = 0;
	for (int i = 0; i < 4; i++) {
		const size_t n = strlen(part[i]);
		if (n >= size - used) return FT_ERR_ARGUMENT;
		memcpy(path + used, part[i], n + 1);
		used += n;
	}
	return FT_OK;
}

/* FT_OK if the files in a directory were put there by a user who is trusted. */
static inline int ft_place_trusted(const char *dir, const ft_options *options) {
	struct stat st;
	if (lstat(dir, &st) != 0) return FT_ERR_NO_FILE;
	if (S_ISLNK(st.st_mode)) return FT_ERR_LINK;
	if (!S_ISDIR(st.st_mode)) return FT_ERR_NOT_FILE;
	return ft_trusted(st.st_uid, options) ? FT_OK : FT_ERR_OWNER;
}

/* The rank of the mirror at path: 2 if its writer is alive, 1 if not; 0 for a file that
 * cannot be opened, -1 for none. */
static inline int ft_place_rank(const char *path, const ft_options *options) {
	ft_reader r;
	ft_status s;
	const int err = ft_open(&r, path, options);
	if (err) return err == FT_ERR_NO_FILE ? -1 : 0;
	const int rank = ft_get_status(&r, &s) == FT_OK && s.alive ? 2 : 1;
	ft_close(&r);
	return rank;
}

FT_API int ft_locate(const char *instance, const ft_options *options, char *path, size_t size) {
	const char *name = instance == NULL || instance[0] == '\0' ? "default" : instance;
	/* A program with the privileges of its file does not go where its caller's environment says. */
#ifdef __linux__
	const char *runtime = getauxval(AT_SECURE) ? NULL : getenv("XDG_RUNTIME_DIR");
#else
	const char *runtime = getenv("XDG_RUNTIME_DIR");
#endif
	const char *base[] = {"/run", "/dev/shm", runtime != NULL && runtime[0] == '/' ? runtime : NULL};
	int best = -1, place = -1, result = FT_ERR_NO_FILE;
	if (size == 0 || strchr(name, '/') != NULL) return FT_ERR_ARGUMENT;
	for (int i = 0; i < 3 && best < 2 && base[i] != NULL; i++) {
		int err = ft_place_join(path, size, base[i], "/flowtally", "");
		if (err) return err;
		err = ft_place_trusted(path, options);
		if (err) {
			if (result == FT_ERR_NO_FILE) result = err;
			continue;
		}
		err = ft_place_join(path, size, base[i], "/flowtally/", name);
		if (err) return err;
		const int rank = ft_place_rank(path, options);
		if (rank > best) {
			best = rank;
			place = i;
		}
	}
	if (best < 0) {
		path[0] = '\0';
		return result;
	}
	return ft_place_join(path, size, base[place], "/flowtally/", name);
}
#endif /* FLOWTALLY_SHARED */

#ifdef __cplusplus
}
#endif

#endif /* FLOWTALLY_PLACE_H */
