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

// secure reports whether the auxiliary vector says that this program has the privileges of its file. Only Linux says so: if
// the vector cannot be read there, it may have said it.
func secure(vector [][2]uintptr, err error) bool {
	if err != nil && runtime.GOOS == "linux" {
		return true
	}
	const atSecure = 23
	return slices.ContainsFunc(vector, func(w [2]uintptr) bool {
		return w[0] == atSecure && w[1] != 0
	})
}
