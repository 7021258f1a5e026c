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

// checkTrust refuses a path that is not absolute, since the loader would look for it elsewhere. It refuses a
// file that is not regular, since a FIFO would keep the loader waiting. For root and in secure execution it
// also refuses a library that another user could have written or put there, because a library runs with all
// that the process may do. The loader takes a name, and of a descriptor's name it would derive a wrong
// $ORIGIN. The name is as good here: only users that trusts accepts can give it to
// another file. A file that is not there is left to the loader.
func checkTrust(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("opening %s: a library's path must be absolute", path)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	if secure := secureExecution(); os.Geteuid() == 0 || secure {
		caller := uint32(os.Geteuid())
		f, why, err := trust.Open(path, func(uid uint32) bool { return trusts(uid, caller, secure) })
		switch {
		case err != nil:
			return fmt.Errorf("opening %s: %w", path, err)
		case why != "":
			return fmt.Errorf("opening %s: %w: %s", path, ErrUntrusted, why)
		}
		defer f.Close()
		if info, err = f.Stat(); err != nil {
			return fmt.Errorf("opening %s: %w", path, err)
		}
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("opening %s: it is not a regular file: name the library itself", path)
	}
	return nil
}

// atSecure is AT_SECURE of <elf.h>.
const atSecure = 23

// secureExecution reports whether the kernel gave the program more privileges than its caller has,
// by a set-user-ID bit or by file capabilities (setcap). A file that the caller can write must then
// not be loaded. A missing vector counts as yes: glibc then takes TMPDIR out of the environment,
// behind which Go's runtime does not find the vector any more.
func secureExecution() bool {
	aux, err := unix.Auxv()
	return err != nil || !slices.Contains(aux, [2]uintptr{atSecure, 0})
}

// trusts reports whether root loads files of that user: root's own files, and files of the
// program's owner, who decides which code runs here anyway. In secure execution the caller's files
// are not trusted.
func trusts(uid, caller uint32, secure bool) bool {
	return uid == 0 || !secure && uid == caller || trust.OwnsProgram(uid)
}
