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

// checkTrust returns an error if we must not load a library from path. It refuses
//   - a relative path, because the loader would look for it elsewhere;
//   - a file that is not regular, because a FIFO would block the loader;
//   - for root and in secure execution, a library written or placed by another user, because its code would
//     run with all privileges of the process.
//
// A missing file is no error here: the loader reports it.
//
// The loader opens the path again after this check. Nobody can replace the file in between, except for users
// accepted by trusts. So we need not pass a descriptor (/proc/self/fd/N), which would give the loader a
// wrong $ORIGIN.
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

// statTrusted returns the FileInfo of path. It returns ErrUntrusted if a user outside trusts could have written or
// placed the file.
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

// secureExecution reports whether the program has more privileges than its caller, by a set-user-ID bit or by
// file capabilities (setcap). Then we must not load a file writable by the caller.
//
// If there is no auxiliary vector, we assume secure execution. In secure execution glibc removes TMPDIR from
// the environment, and Go's runtime may then fail to find the vector, which it expects behind the environment.
func secureExecution() bool {
	aux, err := unix.Auxv()
	return err != nil || !slices.Contains(aux, [2]uintptr{atSecure, 0})
}

// trusts reports whether we load files of a user. We trust root, and the owner of the program, who decides which
// code runs here anyway. Except in secure execution, we also trust the caller.
func trusts(uid, caller uint32, secure bool) bool {
	return uid == 0 || !secure && uid == caller || trust.OwnsProgram(uid)
}
