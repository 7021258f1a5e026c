//go:build !linux

package dispatcher

import (
	"errors"
	"os"

	"github.com/cilium/ebpf"
)

// hook is the XDP hook of an interface.
type hook struct {
	grace   func() error // waits for an RCU grace period
	ifindex int
}

// newHook returns an error: XDP needs Linux.
func newHook(int, func() error) (*hook, error) { return nil, errors.ErrUnsupported }

// Close implements io.Closer.
func (h *hook) Close() error { return nil }

func (h *hook) attached() (attachment, error) { return attachment{}, errors.ErrUnsupported }

func (h *hook) exchange(*ebpf.Program, *dispatcher) error { return errors.ErrUnsupported }

func openTrusted() (*os.File, error) { return nil, errors.ErrUnsupported }

func flock(*os.File) error { return errors.ErrUnsupported }
