package shm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/trust"
)

// Remove removes the mirror at path, with its totals, and the files beside it. ErrInUse: a writer has it. fs.ErrNotExist:
// there is no mirror.
//
// Remove opens the directory of path once and works in that one, even if another directory gets its name meanwhile. It does
// not follow a link that another user may have made.
func Remove(path string) error {
	dir, err := openDir(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("removing mirror: %w", err)
	}
	defer dir.Close()
	here := fmt.Sprintf("/proc/self/fd/%d", dir.Fd())
	if err := removeIn(filepath.Join(here, filepath.Base(path))); err != nil {
		return fmt.Errorf("removing mirror: %w", renamedError{err, here, filepath.Dir(path)})
	}
	return nil
}

// openDir opens a directory. It follows links only where no untrusted user could have made one.
func openDir(path string) (*os.File, error) {
	dir, why, err := trust.Open(path, func(uid uint32) bool { return uid == 0 || uid == uint32(os.Geteuid()) })
	if err != nil || why == "" {
		return dir, err
	}
	return openWithoutLinks(path)
}

// openWithoutLinks opens a directory part by part, and fails at a symbolic link. openat2 with RESOLVE_NO_SYMLINKS does that in
// one call, but needs Linux 5.6, and some emulators lack it.
func openWithoutLinks(path string) (*os.File, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}

	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	dir, err := unix.Open("/", flags, 0)
	if err != nil {
		return nil, fmt.Errorf("opening directory /: %w", err)
	}
	for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		next, err := unix.Openat(dir, part, flags, 0)
		unix.Close(dir)
		if err != nil {
			return nil, fmt.Errorf("opening directory %s without following links: %s: %w", path, part, err)
		}
		dir = next
	}
	return os.NewFile(uintptr(dir), path), nil
}

// removeIn is Remove for a path through the descriptor of its directory.
func removeIn(path string) error {
	if _, err := os.Lstat(path); err != nil {
		return err
	}
	if err := refuseForeign(Options{Path: path}); err != nil {
		return err
	}
	lock, err := takeLock(path, func(string) {})
	if err != nil {
		return err
	}
	defer lock.Close()

	// Remove the lock last, while we hold it: a writer that starts meanwhile gets ErrInUse, and never half of the files.
	var errs []error
	for _, file := range Files(path) {
		if file == lock.Name() {
			continue
		}
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	errs = append(errs, os.Remove(lock.Name()))
	return errors.Join(errs...)
}

// renamedError shows the path that the caller gave in place of the path through the descriptor.
type renamedError struct {
	error
	from, to string
}

func (e renamedError) Error() string { return strings.ReplaceAll(e.error.Error(), e.from, e.to) }
func (e renamedError) Unwrap() error { return e.error }
