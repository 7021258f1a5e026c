//go:build unix

package ibv

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// checkTrust refuses a path that the loader would look for elsewhere, and, for root and in
// secure execution, a library that somebody else could have written, because a library runs
// with all that the process may do: file and directory must belong to those that trusts
// names, and be writable by nobody else. A file that is not there is left to the loader.
func checkTrust(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("opening %s: a library's path must be absolute", path)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil
	}
	if info, err := os.Stat(real); err == nil && !info.Mode().IsRegular() { // a FIFO would keep the loader waiting
		return fmt.Errorf("opening %s: it is no regular file: name the library itself", path)
	}
	secure := secureExecution()
	if os.Geteuid() != 0 && !secure {
		return nil
	}
	for _, p := range []string{real, filepath.Dir(real)} {
		info, err := os.Stat(p)
		if err != nil {
			return fmt.Errorf("opening %s: %w", path, err)
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && !trusts(st.Uid, uint32(os.Geteuid()), secure) {
			return fmt.Errorf("opening %s: %w: %s belongs to user %d, whom root does not trust: chown root %s", path, ErrUntrusted, p, st.Uid, p)
		}
		if info.Mode().Perm()&othersWrite(info) != 0 {
			return fmt.Errorf("opening %s: %w: %s (mode %04o) can be written by others than its owner: chmod go-w %s",
				path, ErrUntrusted, p, info.Mode().Perm(), p)
		}
	}
	return nil
}

// atSecure is AT_SECURE of <elf.h>.
const atSecure = 23

// secureExecution says that the kernel gave the program more than its caller has, by a
// set-user-ID bit or by file capabilities (setcap): what the caller can write is not to run with it.
// No answer means yes: glibc takes TMPDIR out of the environment then, behind which Go's runtime
// does not find the vector any more.
func secureExecution() bool {
	aux, err := unix.Auxv()
	return err != nil || !slices.Contains(aux, [2]uintptr{atSecure, 0})
}

// trusts tells whose files root loads: its own, and those of the owner of this program,
// who decides what runs here anyway. In secure execution the caller is not among them.
func trusts(uid, caller uint32, secure bool) bool {
	if uid == 0 || !secure && uid == caller {
		return true
	}
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

// othersWrite is the bits that may not be set. A directory's group may write, as Debian's
// does in /usr/local; with the sticky bit only the owner replaces a file.
func othersWrite(info os.FileInfo) os.FileMode {
	switch {
	case !info.IsDir():
		return 0o022
	case info.Mode()&os.ModeSticky != 0:
		return 0
	}
	return 0o002
}
