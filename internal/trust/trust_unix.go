//go:build unix

package trust

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Distrust says why the file at path, which is no symbolic link, could have been
// written by others than those whom owner trusts, and what to do about it; "":
// it could not. The file and its directory must belong to one of them and be
// writable by nobody else. An error says that a path could not be looked at.
func Distrust(path string, owner func(uid uint32) bool) (why string, err error) {
	for _, p := range []string{path, filepath.Dir(path)} {
		info, err := os.Stat(p)
		if err != nil {
			return "", err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && !owner(st.Uid) {
			return fmt.Sprintf("%s belongs to user %d, whom root does not trust: chown root %s", p, st.Uid, p), nil
		}
		if info.Mode().Perm()&othersWrite(info) != 0 {
			return fmt.Sprintf("%s (mode %04o) can be written by others than its owner: chmod go-w %s", p, info.Mode().Perm(), p), nil
		}
	}
	return "", nil
}

// othersWrite is the bits that may not be set. A directory's group may write:
// Debian's /usr/local/bin is root:staff 2775. In a directory with the sticky bit
// only the owner replaces a file.
func othersWrite(info os.FileInfo) os.FileMode {
	switch {
	case !info.IsDir():
		return 0o022
	case info.Mode()&os.ModeSticky != 0:
		return 0
	}
	return 0o002
}

// OwnsProgram tells whether this very program belongs to that user, who decides
// what runs here anyway (a build tree used with sudo), and others cannot write it.
func OwnsProgram(uid uint32) bool {
	self, err := os.Executable()
	if err != nil {
		return false
	}
	info, err := os.Stat(self)
	if err != nil || info.Mode().Perm()&0o022 != 0 {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Uid == uid
}
