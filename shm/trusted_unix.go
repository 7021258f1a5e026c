//go:build unix

package shm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// trusts reports whether the reader trusts the numbers in a user's files.
func (o ReaderOptions) trusts(uid uint32) bool {
	return o.AnyOwner || uid == 0 || uid == uint32(os.Geteuid()) || slices.Contains(o.Owners, uid)
}

// trustDir returns an error if an untrusted user owns dir, whose status is st: that user may have put the files there.
func (o ReaderOptions) trustDir(dir string, st *unix.Stat_t) error {
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("%s: locating mirror: not a directory (links are not followed): %w", dir, ErrPermission)
	case !o.trusts(st.Uid):
		return fmt.Errorf("%s: locating mirror: the directory belongs to user %d, not to root or user %d: name that owner if its numbers are to be trusted: %w",
			dir, st.Uid, os.Geteuid(), ErrPermission)
	}
	return nil
}

// ownedBy reports whether dir is a directory of the user uid.
func ownedBy(dir string, uid int) bool {
	var st unix.Stat_t
	return unix.Stat(dir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && int(st.Uid) == uid
}

// trustsPeer returns an error if the user at the other end of a socket is not trusted.
func (o ReaderOptions) trustsPeer(uid uint32) error {
	if o.trusts(uid) {
		return nil
	}
	return fmt.Errorf("the other end belongs to user %d, not to root or this process's user: name that user if its numbers are to be trusted: %w", uid, ErrPermission)
}

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

// openRegular opens a regular file at path, without following a link, and returns its status.
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
