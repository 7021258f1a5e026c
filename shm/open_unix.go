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
)

// beside is the file that goes with the mirror at path: NAME.suffix of NAME.mirror.
func beside(path, suffix string) string { return strings.TrimSuffix(path, ".mirror") + "." + suffix }

// Files are all files that a writer of the mirror at path may leave, the mirror first. Who removes
// a mirror removes them, once its writer has ended.
func Files(path string) []string {
	return []string{path, lockPath(path), waitPath(path), devicePath(path)}
}

// lockPath is the file whose lock the writer of path holds.
func lockPath(path string) string { return beside(path, "lock") }

// openMapping opens path without following a link, checks what and whose it
// is, and maps it read-only.
func openMapping(path string, o ReaderOptions) (*mapping, error) {
	f, st, err := openRegular(path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if !o.trusts(st.Uid) {
		return nil, fmt.Errorf("%s: opening mirror: belongs to user %d, not to root or user %d: name that owner if its numbers are to be trusted: %w",
			path, st.Uid, os.Geteuid(), ErrPermission)
	}
	if st.Size < headerSize {
		return nil, fmt.Errorf("%s: opening mirror: %w", path, tooShort(st.Size))
	}
	m, err := mapFile(f, st.Size, false)
	if err != nil {
		return nil, err
	}
	m.id = idOf(st)
	return m, nil
}

// openRegular opens a regular file at path and answers its status.
func openRegular(path string, flags int) (*os.File, *unix.Stat_t, error) {
	// O_NONBLOCK: opening a FIFO must not wait for its other end.
	fd, err := unix.Open(path, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		next := ""
		switch {
		case errors.Is(err, fs.ErrNotExist):
			next = ": is flowtally running?"
		case errors.Is(err, syscall.ELOOP):
			next = ": it is a symbolic link, which is not followed: name the file itself"
		case errors.Is(err, fs.ErrPermission):
			next = ": ask its owner for read access"
		}
		return nil, nil, fmt.Errorf("%s: opening mirror: %w%s", path, err, next)
	}
	f := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("%s: reading status: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		f.Close()
		return nil, nil, fmt.Errorf("%s: opening mirror: not a regular file: %w", path, ErrFormat)
	}
	return f, &st, nil
}
