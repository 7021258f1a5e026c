//go:build !linux

package shm

import "syscall"

// Other systems have no futex and no page of waiters: a waiter looks once per cycle.

func futexWait(*uint32, uint32, int64, uint32) syscall.Errno { return syscall.ENOSYS }

func futexWake(*uint32, int, uint32) int { return 0 }
