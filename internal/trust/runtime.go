package trust

import (
	"os"
	"path/filepath"
)

// RuntimeDirUnlessSetID returns the path of name in $XDG_RUNTIME_DIR, or "" if the variable names no directory. It also
// returns "" in a program that runs as the user or the group of its file: such a program does not go where its caller's
// environment says.
func RuntimeDirUnlessSetID(name string) string {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if os.Getuid() != os.Geteuid() || os.Getgid() != os.Getegid() || !filepath.IsAbs(dir) {
		return ""
	}
	return filepath.Join(dir, name)
}
