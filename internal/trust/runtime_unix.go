//go:build unix

package trust

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// RuntimeDir returns the path of name in $XDG_RUNTIME_DIR, or "" if the variable names no directory. A program with the
// privileges of its file does not go where its caller's environment says.
func RuntimeDir(name string) string {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if secure(unix.Auxv()) || os.Getuid() != os.Geteuid() || os.Getgid() != os.Getegid() || !filepath.IsAbs(dir) {
		return ""
	}
	return filepath.Join(dir, name)
}

// secure reports whether the kernel says that this program has the privileges of its file. Linux alone says it: a vector
// that cannot be read there may have said so.
func secure(vector [][2]uintptr, err error) bool {
	const atSecure = 23
	return err != nil && runtime.GOOS == "linux" || slices.ContainsFunc(vector, func(w [2]uintptr) bool { return w[0] == atSecure && w[1] != 0 })
}
