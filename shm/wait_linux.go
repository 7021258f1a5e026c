package shm

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Operations of futex(2), without FUTEX_PRIVATE_FLAG: processes share the word. A read-only mapping of the word is enough
// for both.
const (
	opWaitBitset = 9  // FUTEX_WAIT_BITSET: until a time of CLOCK_MONOTONIC
	opWakeBitset = 10 // FUTEX_WAKE_BITSET
)

// futexWait sleeps if *word is value, until a wake with one of bits comes or the time until.
func futexWait(word *uint32, value uint32, until int64, bits uint32) syscall.Errno {
	_, errno := syscallFutex(unix.SYS_FUTEX, word, opWaitBitset, uintptr(value), max(until, 0), bits)
	return errno
}

// futexWake wakes up to n sleepers on word that have one of bits, and returns their number. The sleeper that has slept
// longest comes first.
func futexWake(word *uint32, n int, bits uint32) int {
	woken, errno := syscallFutexWake(unix.SYS_FUTEX, word, opWakeBitset, uintptr(n), bits)
	if errno != 0 {
		return 0
	}
	return int(woken)
}
