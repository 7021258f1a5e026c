package shm

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Operations of futex(2), without FUTEX_PRIVATE_FLAG: processes share the word. A read-only mapping of it is
// enough for both.
const (
	opWaitBitset = 9  // FUTEX_WAIT_BITSET: until a time of CLOCK_MONOTONIC
	opWakeBitset = 10 // FUTEX_WAKE_BITSET
)

// futexWait sleeps while *word is value, until it is woken by one of bits or until has come.
func futexWait(word *uint32, value uint32, until int64, bits uint32) syscall.Errno {
	_, errno := syscallFutex(unix.SYS_FUTEX, word, opWaitBitset, uintptr(value), max(until, 0), bits)
	return errno
}

// futexWake wakes up to n sleepers on word with one of bits, the longest first, and returns their number.
func futexWake(word *uint32, n int, bits uint32) int {
	woken, errno := syscallFutexWake(unix.SYS_FUTEX, word, opWakeBitset, uintptr(n), bits)
	if errno != 0 {
		return 0
	}
	return int(woken)
}
