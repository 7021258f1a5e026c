package backend

import "errors"

var (
	// ErrDeviceLost: no verb of the device works any more.
	ErrDeviceLost = errors.New("the device failed or was removed")
	// ErrNoDevice: the interface has no device to count with, as on most hosts.
	ErrNoDevice = errors.New("no RDMA device belongs to it")
	// ErrUndone: the flows of a call that was refused have counted for a while, perhaps packets of other flows.
	ErrUndone = errors.New("flows have counted for a while")
	// ErrUnread: the device counts, but a slot cannot be read.
	ErrUnread = errors.New("the counter cannot be read")
)

// NoDevice returns err as an error that satisfies ErrNoDevice too, with the same text. It returns nil for nil.
func NoDevice(err error) error {
	if err == nil {
		return nil
	}
	return &noDevice{err}
}

type noDevice struct{ error }

func (e *noDevice) Unwrap() error        { return e.error }
func (e *noDevice) Is(target error) bool { return target == ErrNoDevice }
