//go:build !linux

package shm

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Other systems have no futex: a waiter looks once per cycle, and nothing wakes it.

func futexWait(*uint32, uint32, int64) syscall.Errno { return syscall.ENOSYS }

func futexWake(*uint32) {}

func openLease(path string) (*os.File, error) {
	return nil, fmt.Errorf("%s: opening the page of waiters: %w", waitPath(path), errors.ErrUnsupported)
}
