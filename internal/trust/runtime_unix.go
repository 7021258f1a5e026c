//go:build unix

package trust

import (
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// RuntimeDir returns the path of name in $XDG_RUNTIME_DIR, or "" if the variable names no directory. A program with the
// privileges of its file does not go where its caller's environment says.
func RuntimeDir(name string) string {
	const secure = 23        // AT_SECURE
	vector, _ := unix.Auxv() // Linux alone has the entry
	privileged := slices.ContainsFunc(vector, func(w [2]uintptr) bool { return w[0] == secure && w[1] != 0 })
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if privileged || os.Getuid() != os.Geteuid() || os.Getgid() != os.Getegid() || !filepath.IsAbs(dir) {
		return ""
	}
	return filepath.Join(dir, name)
}
