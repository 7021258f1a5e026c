/* SPDX-License-Identifier: Apache-2.0 */
//go:build cgo

#define _GNU_SOURCE
#include "dl_linux.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The version that is meant first, then any: IBVERBS_1.0 has the same names with other
 * structs, and a vendor may have repackaged the tags. */
static void *lookup(void *lib, const char *name, const char *version) {
	void *f = NULL;
#ifdef __GLIBC__
	f = dlvsym(lib, name, version);
#else
	(void)version;
#endif
	return f ? f : dlsym(lib, name);
}

void *ft_dlopen(const char *path, int provider, const struct ft_symbol *symbols, size_t n, char *why, size_t whylen) {
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		const char *e = dlerror();
		snprintf(why, whylen, "%s", e ? e : "dlopen says nothing");
		return NULL;
	}
	/* A provider that is linked with libibverbs adds itself to the list of drivers there as it is
	 * loaded, and stays on it. Unloading it would leave a pointer that the next
	 * ibv_get_device_list follows. libibverbs itself never unloads a provider either. */
	if (provider && dlsym(lib, "ibv_get_device_list")) dlopen(path, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
	for (size_t i = 0; i < n; i++) {
		void *f = lookup(lib, symbols[i].name, symbols[i].version);
		memcpy(symbols[i].slot, &f, sizeof f);
		if (!f && symbols[i].required) {
			snprintf(why, whylen, "%s: it has no symbol %s", path, symbols[i].name);
			dlclose(lib);
			return NULL;
		}
	}
	return lib;
}

int ft_no_object(void) { return errno > 0 ? errno : EIO; }

int ft_status(int rc) {
	if (rc >= 0) return rc;
	return rc == -1 ? ft_no_object() : -rc;
}
