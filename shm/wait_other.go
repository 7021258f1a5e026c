//go:build !linux

package shm

import (
	"errors"
	"fmt"
	"syscall"
)

// Other systems have no futex: a waiter looks once per cycle, and nothing wakes it.

func futexWait(*uint32, uint32, int64) syscall.Errno { return syscall.ENOSYS }

func futexWake(*uint32) {}

type leaseFile struct{}

func openLease(path string) (*leaseFile, error) {
	return nil, fmt.Errorf("%s: opening the page of waiters: %w", waitPath(path), errors.ErrUnsupported)
}

func (*leaseFile) write(int64) error { return errors.ErrUnsupported }

func (*leaseFile) close() {}
