//go:build unix

package trust

import (
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// RuntimeDir is like RuntimeDirUnlessSetID, but also returns "" in programs with file capabilities.
func RuntimeDir(name string) string {
	if secure(unix.Auxv()) {
		return ""
	}
	return RuntimeDirUnlessSetID(name)
}

// secure reports whether the program got privileges from its file, according to AT_SECURE in the auxiliary vector. Only
// Linux has AT_SECURE. If the vector cannot be read there, secure assumes the worst.
func secure(vector [][2]uintptr, err error) bool {
	if err != nil && runtime.GOOS == "linux" {
		return true
	}
	const atSecure = 23
	return slices.ContainsFunc(vector, func(w [2]uintptr) bool {
		return w[0] == atSecure && w[1] != 0
	})
}
