package lab

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// As runs f on a thread of that user, for a test that is root.
func As(t testing.TB, uid int, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
			t.Error(errno)
			return
		}
		f()
	}()
	<-done
}
