package shmrows

import (
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/bench"
)

// sharedWord is a futex in a file: written through one mapping, slept on through
// another, which is read-only.
type sharedWord struct{ writable, readable *atomic.Uint32 }

func mapWord(open *bench.Closers, path string) (*sharedWord, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making a word: %w", err)
	}
	defer f.Close()
	if err := f.Truncate(int64(os.Getpagesize())); err != nil {
		return nil, fmt.Errorf("making a word: %w", err)
	}
	var words [2]*atomic.Uint32
	for i, prot := range []int{unix.PROT_READ | unix.PROT_WRITE, unix.PROT_READ} {
		b, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), prot, unix.MAP_SHARED)
		if err != nil {
			return nil, fmt.Errorf("mapping a word: %w", err)
		}
		open.Add(func() error { return unix.Munmap(b) })
		words[i] = (*atomic.Uint32)(unsafe.Pointer(&b[0])) // of a page: aligned; until the row is closed
	}
	return &sharedWord{words[0], words[1]}, nil
}

const (
	futexWait = 0
	futexWake = 1
)

func (w *sharedWord) wake(n uint64) {
	w.writable.Store(uint32(n))
	_, _, _ = syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w.writable)), futexWake, math.MaxInt32, 0, 0, 0)
}

func (w *sharedWord) sleep(n uint64) error {
	for {
		v := w.readable.Load()
		if v >= uint32(n) {
			return nil
		}
		_, _, err := syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w.readable)), futexWait, uintptr(v), 0, 0, 0)
		if err != 0 && err != unix.EAGAIN && err != unix.EINTR {
			return fmt.Errorf("sleeping on a word: %w", err)
		}
	}
}

func gettid() int { return unix.Gettid() }
