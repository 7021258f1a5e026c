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
