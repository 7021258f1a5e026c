//go:build !linux

package dispatcher

import (
	"errors"
	"os"

	"github.com/cilium/ebpf"
)

// Hook is the XDP hook of an interface.
type Hook struct {
	grace   func() error // waits for an RCU grace period
	ifindex int
}

// NewHook returns an error: XDP needs Linux.
func NewHook(int, func() error) (*Hook, error) { return nil, errors.ErrUnsupported }

// Close implements io.Closer.
func (h *Hook) Close() error { return nil }

func (h *Hook) attached() (attachment, error) { return attachment{}, errors.ErrUnsupported }

func (h *Hook) exchange(*ebpf.Program, *dispatcher) error { return errors.ErrUnsupported }

func openTrusted() (*os.File, error) { return nil, errors.ErrUnsupported }

func flock(*os.File) error { return errors.ErrUnsupported }
