//go:build unix

package shm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/shm/words"
)

// beside is the file that goes with the mirror at path: NAME.suffix of NAME.mirror.
func beside(path, suffix string) string { return strings.TrimSuffix(path, ".mirror") + "." + suffix }

// Files are all files that a writer of the mirror at path may leave, the mirror first. A program that
// removes a mirror removes them all, once its writer has ended.
func Files(path string) []string {
	return []string{path, lockPath(path), waitPath(path), devicePath(path), LivePath(path), words.Path(path)}
}

// lockPath is the file whose lock the writer of path holds.
func lockPath(path string) string { return beside(path, "lock") }

// openTrusted opens path read-only, without following a link, and checks its type and its owner.
func openTrusted(path string, o ReaderOptions) (*os.File, *unix.Stat_t, error) {
	f, st, err := openRegular(path, unix.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: check the path, or start its writer (flowtally run)", err)
	}
	if err != nil {
		return nil, nil, err
	}
	if !o.trusts(st.Uid) {
		f.Close()
		return nil, nil, fmt.Errorf("%s: opening mirror: belongs to user %d, not to root or user %d: name that owner if its numbers are to be trusted: %w",
			path, st.Uid, os.Geteuid(), ErrPermission)
	}
	return f, st, nil
}

// openView attaches to the mirror at path, and returns which file that is.
func openView(path string, o ReaderOptions) (v *view, id fileID, err error) {
	f, st, err := openTrusted(path, o)
	if err != nil {
		return nil, id, err
	}
	if err = Guard(func() (err error) { v, err = attach(fileStore{File: f}); return err }); err != nil {
		f.Close()
		return nil, id, fmt.Errorf("%s: opening mirror: %w", path, err)
	}
	return v, idOf(st), nil
}

// openRegular opens a regular file at path and returns its status.
func openRegular(path string, flags int) (*os.File, *unix.Stat_t, error) {
	// O_NONBLOCK: opening a FIFO must not wait for its other end.
	fd, err := unix.Open(path, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		next := ""
		switch {
		case errors.Is(err, syscall.ELOOP):
			next = ": it is a symbolic link, which is not followed: name the file itself"
		case errors.Is(err, fs.ErrPermission):
			next = ": ask its owner for read access"
		}
		return nil, nil, fmt.Errorf("%s: opening file: %w%s", path, err, next)
	}
	f := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("%s: reading status: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		f.Close()
		return nil, nil, fmt.Errorf("%s: opening file: not a regular file: %w", path, ErrFormat)
	}
	return f, &st, nil
}
