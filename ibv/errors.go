package ibv

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/flowtally/flowtally/probe"
)

var (
	// ErrBusy is returned by Close while another object holds this one. The error names the holders,
	// unless only the library knows them (EBUSY).
	ErrBusy = errors.New("still in use")

	// ErrClosed is returned by all methods of a closed object except Close.
	ErrClosed = errors.New("closed")

	// ErrDeviceGone is returned by verbs after the device was removed or has failed for good. Close
	// its objects, and open the device again when it is back in the list.
	ErrDeviceGone = errors.New("the device is gone")

	// ErrUntrusted is returned by Load if other users can write the library, and the program runs as
	// root or with more privileges than its caller.
	ErrUntrusted = errors.New("the library is not to be trusted")

	// ErrNoDevice is returned by Open if the device list has no device with the name.
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

// Unwrap returns the errno. So errors.Is also finds the meanings known to package syscall, for example
// fs.ErrPermission for EPERM.
func (e *Error) Unwrap() error { return e.Errno }

// Is reports whether the errno means ErrBusy, ErrDeviceGone or probe.ErrNotSupported.
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

// notSupported reports whether errno means that the verb does not exist. Old libraries return ENOSYS.
// Kernels return EPROTONOSUPPORT if uverbs lack the object or its method. ENOTSUP equals EOPNOTSUPP on
// Linux, but not elsewhere.
func notSupported(errno syscall.Errno) bool {
	return errno == syscall.EOPNOTSUPP ||
		errno == syscall.ENOTSUP ||
		errno == syscall.ENOSYS ||
		errno == syscall.EPROTONOSUPPORT
}

// busyError is the ErrBusy of a refused Close, with the object and its holders.
type busyError struct {
	object  string
	holders string
}

func (e *busyError) Error() string {
	return fmt.Sprintf("closing %s: %s: close %s first", e.object, ErrBusy, e.holders)
}

func (e *busyError) Is(target error) bool { return target == ErrBusy }
