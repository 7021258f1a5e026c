//go:build unix

package ibv

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/trust"
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
	caller := uint32(os.Geteuid())
	why, err := trust.Distrust(real, func(uid uint32) bool { return trusts(uid, caller, secure) })
	switch {
	case err != nil:
		return fmt.Errorf("opening %s: %w", path, err)
	case why != "":
		return fmt.Errorf("opening %s: %w: %s", path, ErrUntrusted, why)
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
	return uid == 0 || !secure && uid == caller || trust.OwnsProgram(uid)
}
