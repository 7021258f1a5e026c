package backend

import "errors"

var (
	// ErrDeviceLost: the device was removed or has failed for good, and no verb works.
	ErrDeviceLost = errors.New("the device failed or was removed")
	// ErrNoDevice: the interface has no RDMA device. Most hosts have none at all.
	ErrNoDevice = errors.New("no RDMA device belongs to it")
	// ErrUndone: a call has failed and was undone, but meanwhile its flows have counted, perhaps packets of other flows.
	ErrUndone = errors.New("flows have counted for a while")
	// ErrUnread: the device counts on, but a slot cannot be read.
	ErrUnread = errors.New("the counter cannot be read")
)

// NoDevice adds ErrNoDevice to an error without changing its text. It returns nil for nil.
func NoDevice(err error) error {
	if err == nil {
		return nil
	}
	return &noDevice{err}
}

type noDevice struct{ error }

func (e *noDevice) Unwrap() error        { return e.error }
func (e *noDevice) Is(target error) bool { return target == ErrNoDevice }

// NoVerbsError says that the kernel of the host has no RDMA. It is an ErrNoDevice.
type NoVerbsError struct{ Err error }

func (e *NoVerbsError) Error() string { return e.Err.Error() }

// Unwrap returns the error of listing the devices.
func (e *NoVerbsError) Unwrap() error { return e.Err }

// Is reports whether target is ErrNoDevice.
func (e *NoVerbsError) Is(target error) bool { return target == ErrNoDevice }
