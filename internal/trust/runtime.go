package trust

import (
	"os"
	"path/filepath"
)

// RuntimeDirUnlessSetID returns the path of name in $XDG_RUNTIME_DIR. It returns "" if the variable is not an absolute path,
// and in set-user-ID and set-group-ID programs, which must not trust the environment of their caller.
func RuntimeDirUnlessSetID(name string) string {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if os.Getuid() != os.Geteuid() || os.Getgid() != os.Getegid() || !filepath.IsAbs(dir) {
		return ""
	}
	return filepath.Join(dir, name)
}
