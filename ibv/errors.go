package ibv

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/flowtally/flowtally/probe"
)

var (
	// ErrBusy is satisfied when an object is still held: by another object of this package, which
	// the error names, or by an object of the library (EBUSY).
	ErrBusy = errors.New("still in use")

	// ErrClosed is returned by every method of a closed object except Close.
	ErrClosed = errors.New("closed")

	// ErrDeviceGone is wrapped by the errors of verbs after the device was removed or has failed
	// for good. Open the device again when it is back in the list.
	ErrDeviceGone = errors.New("the device is gone")

	// ErrUntrusted is returned by Load to root for a library that other users can write.
	ErrUntrusted = errors.New("the library is not to be trusted")

	// ErrNoDevice is returned by Open for a name that is not in the device list.
	ErrNoDevice = errors.New("no such RDMA device")
)

// Error is a verb that failed.
type Error struct {
	Verb   string // as in the manual: "ibv_create_flow"
	Device string // "mlx5_0"; empty for verbs of the library
	Errno  syscall.Errno

	gone bool // the device has announced its end (DEVICE_FATAL) before the call
}

func (e *Error) Error() string {
	what := e.Errno.Error()
	if e.gone {
		what += ": " + ErrDeviceGone.Error()
	}

	if e.Device == "" {
		return fmt.Sprintf("calling %s: %s", e.Verb, what)
	}
	return fmt.Sprintf("%s: calling %s: %s", e.Device, e.Verb, what)
}

// Unwrap returns the errno, so that errors.Is also finds what package syscall knows of it:
// fs.ErrPermission for EPERM.
func (e *Error) Unwrap() error { return e.Errno }

// Is reports whether the errno stands for the sentinel: ErrBusy, ErrDeviceGone or
// probe.ErrNotSupported.
func (e *Error) Is(target error) bool {
	switch target {
	case probe.ErrNotSupported:
		return notSupported(e.Errno)
	case ErrBusy:
		return e.Errno == syscall.EBUSY
	case ErrDeviceGone:
		return e.gone || e.Errno == syscall.ENODEV || e.Errno == syscall.ENXIO
	}
	return false
}

// notSupported reports whether errno means that the verb does not exist. ENOSYS comes from old
// libraries, EPROTONOSUPPORT from a kernel whose uverbs lack the object or its method. ENOTSUP and
// EOPNOTSUPP are one number on Linux, and two elsewhere.
func notSupported(errno syscall.Errno) bool {
	return errno == syscall.EOPNOTSUPP ||
		errno == syscall.ENOTSUP ||
		errno == syscall.ENOSYS ||
		errno == syscall.EPROTONOSUPPORT
}

// busyError is a refused Close: the object that is held, and the objects that hold it.
type busyError struct {
	object  string
	holders string
}

func (e *busyError) Error() string {
	return fmt.Sprintf("closing %s: %s: close %s first", e.object, ErrBusy, e.holders)
}

func (e *busyError) Is(target error) bool { return target == ErrBusy }
