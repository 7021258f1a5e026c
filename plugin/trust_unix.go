//go:build unix

package plugin

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// trusted refuses, for root, a binary that somebody else could have written:
// file and directory must belong to root, to the caller, or to the owner of this
// very program (who decides what runs here anyway: a build tree used with
// sudo), and be writable by nobody else. Anyone else is not root and starts what
// it likes.
func trusted(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return trustedBy(path, owners())
}

func owners() map[uint32]bool {
	allowed := map[uint32]bool{0: true, uint32(os.Geteuid()): true}
	if self, err := os.Executable(); err == nil {
		if info, err := os.Stat(self); err == nil && info.Mode()&0o022 == 0 {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				allowed[st.Uid] = true
			}
		}
	}
	return allowed
}

func trustedBy(path string, allowed map[uint32]bool) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	for _, p := range []string{real, filepath.Dir(real)} {
		info, err := os.Stat(p)
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			continue
		}
		if !allowed[st.Uid] {
			return fmt.Errorf("%w: %s belongs to user %d, whom root does not trust: chown root %s", ErrUntrusted, p, st.Uid, p)
		}
		if writable := info.Mode().Perm() & othersWrite(info); writable != 0 {
			return fmt.Errorf("%w: %s (mode %04o) can be written by others than its owner: chmod go-w %s",
				ErrUntrusted, p, info.Mode().Perm(), p)
		}
	}
	return nil
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
