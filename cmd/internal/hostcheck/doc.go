// Package hostcheck tests a host for the abilities that flowtally needs beyond its backends: the kernel, the file system
// of the mirror, the capabilities of this process, and the plugin's binary.
package hostcheck
