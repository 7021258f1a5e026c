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

// Remove removes the mirror at path, its totals, and the files beside it. ErrInUse: a writer has it. fs.ErrNotExist:
// there is no mirror.
//
// Remove opens the directory of path once, and works there whatever takes the directory's place meanwhile. It does not
// follow a link that another user may have made.
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

// openWithoutLinks opens a directory whose path has no symbolic link, part by part. openat2 with RESOLVE_NO_SYMLINKS does
// that in one call, but Linux has it only since 5.6, and some emulators do not.
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

	// The lock goes last, while it is held: a writer that starts meanwhile sees a whole mirror or none.
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

// renamedError is an error that shows a directory by its name instead of its descriptor.
type renamedError struct {
	error
	from, to string
}

func (e renamedError) Error() string { return strings.ReplaceAll(e.error.Error(), e.from, e.to) }
func (e renamedError) Unwrap() error { return e.error }
