package shm

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Operations of futex(2). They lack FUTEX_PRIVATE_FLAG, because processes share the word. A read-only mapping of the word is
// enough for both.
const (
	opWaitBitset = 9  // FUTEX_WAIT_BITSET: until a time of CLOCK_MONOTONIC
	opWakeBitset = 10 // FUTEX_WAKE_BITSET
)

// futexWait sleeps if *word equals value. It returns at a wake that has one of bits, or at the time until. The kernel compares
// under the lock of its queue, behind a full fence, so no wake gets lost between the comparison and the sleep.
func futexWait(word *uint32, value uint32, until int64, bits uint32) syscall.Errno {
	_, errno := syscallFutex(unix.SYS_FUTEX, word, opWaitBitset, uintptr(value), max(until, 0), bits)
	return errno
}

// futexWake wakes up to n sleepers on word that have one of bits, and returns their number. Those that have slept longest come
// first.
func futexWake(word *uint32, n int, bits uint32) int {
	woken, errno := syscallFutexWake(unix.SYS_FUTEX, word, opWakeBitset, uintptr(n), bits)
	if errno != 0 {
		return 0
	}
	return int(woken)
}
