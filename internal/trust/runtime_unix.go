//go:build unix

package trust

import (
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// RuntimeDir is RuntimeDirUnlessSetID, and returns "" also in a program with the capabilities of its file.
func RuntimeDir(name string) string {
	if secure(unix.Auxv()) {
		return ""
	}
	return RuntimeDirUnlessSetID(name)
}

// secure reports whether the kernel says that this program has the privileges of its file. Linux alone says it: a vector
// that cannot be read there may have said so.
func secure(vector [][2]uintptr, err error) bool {
	const atSecure = 23
	return err != nil && runtime.GOOS == "linux" || slices.ContainsFunc(vector, func(w [2]uintptr) bool { return w[0] == atSecure && w[1] != 0 })
}
