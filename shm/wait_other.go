//go:build !linux

package shm

import (
	"errors"
	"fmt"
	"syscall"
)

// Other systems have no futex: a waiter looks once per cycle, and nothing wakes it.

const maxWakes = 1<<31 - 1

func futexWait(*uint32, uint32, int64, uint32) syscall.Errno { return syscall.ENOSYS }

func futexWake(*uint32, int, uint32) int { return 0 }

func openPage(path string) (*waitPage, error) {
	return nil, fmt.Errorf("%s: opening the page of waiters: %w", waitPath(path), errors.ErrUnsupported)
}

func (k *waker) keep() {}
