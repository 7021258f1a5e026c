//go:build !linux

package replay

import (
	"errors"

	"github.com/cilium/ebpf"
)

func unsupported(err error) bool { return errors.Is(err, ebpf.ErrNotSupported) }

func refusesLength(error) bool { return false }
