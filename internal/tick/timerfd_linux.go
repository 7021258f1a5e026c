package tick

import (
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// timerFD is a descriptor of timerfd_create(2), polled by Go's runtime.
type timerFD struct {
	file *os.File
	raw  syscall.RawConn
	read func(fd uintptr) bool // reads the number of expiries; false: none, so wait
}

func newTimer() (timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, err
	}

	t := &timerFD{file: os.NewFile(uintptr(fd), "timerfd")}
	if err := t.file.SetReadDeadline(time.Time{}); err != nil { // it fails if the runtime cannot poll the descriptor
		t.file.Close()
		return nil, err
	}
	if t.raw, err = t.file.SyscallConn(); err != nil {
		t.file.Close()
		return nil, err
	}

	expiries := new(uint64)
	t.read = func(fd uintptr) bool {
		// A raw call, because it does not block: syscall.Read would tell the runtime, and that wakes its monitor thread.
		_, _, errno := syscall.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(expiries)), unsafe.Sizeof(*expiries))
		return errno != unix.EAGAIN
	}
	return t, nil
}

func (t *timerFD) wait() { _ = t.raw.Read(t.read) } // the only error is a closed file

func (t *timerFD) set(first, period time.Duration) {
	spec := unix.ItimerSpec{
		Value:    unix.NsecToTimespec(int64(first)),
		Interval: unix.NsecToTimespec(int64(period)),
	}
	_ = t.raw.Control(func(fd uintptr) { // the only error is a closed file
		_ = unix.TimerfdSettime(int(fd), 0, &spec, nil)
	})
}

func (t *timerFD) close() { _ = t.file.Close() }
