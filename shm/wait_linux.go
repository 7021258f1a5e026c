package shm

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Of futex(2). Without FUTEX_PRIVATE_FLAG: the word is shared between processes,
// and a read-only mapping of it is enough for both.
const (
	opWake       = 1 // FUTEX_WAKE
	opWaitBitset = 9 // FUTEX_WAIT_BITSET: as FUTEX_WAIT, until a time of CLOCK_MONOTONIC
)

// futexWait sleeps while *word is value, until it is woken or until has come.
func futexWait(word *uint32, value uint32, until int64) syscall.Errno {
	return syscallFutex(unix.SYS_FUTEX, word, opWaitBitset, uintptr(value), max(until, 0))
}

// futexWake wakes all who sleep on word.
func futexWake(word *uint32) {
	_ = syscallFutex(unix.SYS_FUTEX, word, opWake, math.MaxInt32, 0)
}

// makeLease makes the page of waiters beside o.Path, or goes on with the one
// that is there, so that who has it open is heard on. The writer's lock is held.
func makeLease(o Options) (*lease, error) {
	if o.WaitGroup < 0 {
		return nil, nil
	}
	path := waitPath(o.Path)
	f, err := openWaitFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: making the page of waiters: %w", path, err)
	}
	defer f.Close()
	group := o.WaitGroup
	if group == 0 { // one that an earlier run was given is taken back
		group = os.Getegid()
	}
	if err := f.Chown(-1, group); err != nil {
		return nil, fmt.Errorf("%s: giving the page of waiters to group %d: %w: run the writer as root or as a member, or name another group: %w",
			path, group, err, ErrPermission)
	}
	if err := f.Chmod(0o660); err != nil {
		return nil, fmt.Errorf("%s: setting mode of the page of waiters: %w", path, err)
	}
	// Its length, whatever waiters have made of it.
	if err := f.Truncate(waitLength); err != nil {
		return nil, fmt.Errorf("%s: setting length of the page of waiters: %w", path, err)
	}
	if err := unix.Fallocate(int(f.Fd()), 0, 0, waitLength); err != nil {
		return nil, fmt.Errorf("%s: reserving the page of waiters: %w", path, err)
	}
	m, err := mapFile(f, waitLength, false)
	if err != nil {
		return nil, err
	}
	return newLease(path, m, o.Logger), nil
}

// openWaitFile opens the page, or makes it, with a mode that lets nobody in yet.
// The directory is the writer's alone, so what else is in its place is the
// writer's to replace.
func openWaitFile(path string) (*os.File, error) {
	f, st, err := openRegular(path, unix.O_RDWR)
	if err == nil && st.Uid == uint32(os.Geteuid()) && st.Nlink == 1 {
		return f, nil
	}
	if err == nil {
		f.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
}

// openLease opens the page beside the mirror at path. It is where eight bytes
// will be written, so whose it is matters: that of the owner of the directory,
// who alone may put it there, and under no other name.
func openLease(path string) (*os.File, error) {
	name := waitPath(path)
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		next := ""
		switch {
		case errors.Is(err, fs.ErrPermission):
			next = ": be in its group to be woken"
		case errors.Is(err, unix.EROFS):
			next = ": mount its directory writable to be woken"
		}
		return nil, fmt.Errorf("%s: opening the page of waiters: %w%s", name, err, next)
	}
	var st, dir unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil {
		err = unix.Stat(filepath.Dir(name), &dir)
	}
	if err == nil && (st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 || st.Uid != dir.Uid) {
		err = fmt.Errorf("not a file of the owner of its directory: %w", ErrPermission)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("%s: opening the page of waiters: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
