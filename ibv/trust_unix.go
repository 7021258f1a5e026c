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

// checkTrust returns why a library must not be loaded from path, or nil. It refuses
//   - a path that is not absolute, because the loader would look for it elsewhere;
//   - a file that is not regular, because a FIFO would keep the loader waiting;
//   - for root and in secure execution, a library that another user could have written or put there,
//     because a library runs with all that the process may do.
//
// It leaves a missing file to the loader.
//
// The loader opens the name again. A descriptor's name (/proc/self/fd/N) would give it a wrong
// $ORIGIN, and is not needed: only users that trusts accepts can give the name to another file.
func checkTrust(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("opening %s: a library's path must be absolute", path)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}

	if secure := secureExecution(); os.Geteuid() == 0 || secure {
		info, err = statTrusted(path, secure)
		if err != nil {
			return fmt.Errorf("opening %s: %w", path, err)
		}
	}

	if !info.Mode().IsRegular() {
		return fmt.Errorf("opening %s: it is not a regular file: name the library itself", path)
	}
	return nil
}

// statTrusted returns the description of a file that only trusted users could have put there, and
// refuses any other.
func statTrusted(path string, secure bool) (os.FileInfo, error) {
	caller := uint32(os.Geteuid())
	f, why, err := trust.Open(path, func(uid uint32) bool { return trusts(uid, caller, secure) })
	switch {
	case err != nil:
		return nil, err
	case why != "":
		return nil, fmt.Errorf("%w: %s", ErrUntrusted, why)
	}
	defer f.Close()
	return f.Stat()
}

// atSecure is AT_SECURE of <elf.h>.
const atSecure = 23

// secureExecution reports whether the kernel gave the program more privileges than its caller has,
// by a set-user-ID bit or by file capabilities (setcap). A file that the caller can write must then
// not be loaded. A missing vector counts as yes: in secure execution glibc takes TMPDIR out of the
// environment, and Go's runtime, which looks for the vector behind the environment, may not find it.
func secureExecution() bool {
	aux, err := unix.Auxv()
	return err != nil || !slices.Contains(aux, [2]uintptr{atSecure, 0})
}

// trusts reports whether files of that user are loaded: root's, the program's owner's, who decides
// which code runs here anyway, and the caller's, but not in secure execution.
func trusts(uid, caller uint32, secure bool) bool {
	return uid == 0 || !secure && uid == caller || trust.OwnsProgram(uid)
}
