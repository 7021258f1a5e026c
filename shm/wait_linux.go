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
	opWaitBitset = 9  // FUTEX_WAIT_BITSET: until a time of CLOCK_MONOTONIC
	opWakeBitset = 10 // FUTEX_WAKE_BITSET

	maxWakes = math.MaxInt32
)

// futexWait sleeps while *word is value, until it is woken by one of bits or until has come.
func futexWait(word *uint32, value uint32, until int64, bits uint32) syscall.Errno {
	_, errno := syscallFutex(unix.SYS_FUTEX, word, opWaitBitset, uintptr(value), max(until, 0), bits)
	return errno
}

// futexWake wakes up to n sleepers on word with one of bits, the longest first, and
// returns how many.
func futexWake(word *uint32, n int, bits uint32) int {
	woken, errno := syscallFutex(unix.SYS_FUTEX, word, opWakeBitset, uintptr(n), 0, bits)
	if errno != 0 {
		return 0
	}
	return int(woken)
}

// openPage maps the page of waiters of the mirror at path. It must belong to the owner
// of the directory, who alone may put it there. How many names it has does not matter:
// other users can raise that where fs.protected_hardlinks is 0.
func openPage(path string) (*waitPage, error) {
	name := waitPath(path)
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%s: opening the page of waiters: %w: be in its group to be woken", name, err)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: opening the page of waiters: %w: the writer wakes nobody, or is of an older version: %w", name, err, errors.ErrUnsupported)
	case err != nil:
		return nil, fmt.Errorf("%s: opening the page of waiters: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	var st, dir unix.Stat_t
	if err := errors.Join(unix.Fstat(fd, &st), unix.Stat(filepath.Dir(name), &dir)); err != nil {
		return nil, fmt.Errorf("%s: opening the page of waiters: reading status: %w", name, err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != dir.Uid:
		return nil, fmt.Errorf("%s: opening the page of waiters: not a file of the owner of its directory: %w", name, ErrPermission)
	case st.Size < pageSize:
		return nil, fmt.Errorf("%s: opening the page of waiters: %d bytes of %d: %w", name, st.Size, pageSize, ErrTruncated)
	}
	m, err := mapFile(f, 0, pageSize, false)
	if err != nil {
		return nil, err
	}
	return attachPage(name, m)
}
