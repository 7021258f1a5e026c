// Package hostcheck tests what flowtally needs of a host beyond its backends: the kernel, the file system of the mirror,
// the capabilities of this process, the plugin's binary, and the reserved words of a running instance.
package hostcheck
