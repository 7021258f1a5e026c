package lab

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// XSK is an AF_XDP socket on queue 0 of an end. It takes every packet that an XDP program redirects to it, and has no
// frames to keep one: it counts them.
type XSK struct {
	fd  int
	mem []byte
}

// NewXSK opens an AF_XDP socket in copy mode.
func NewXSK(e *End) (*XSK, error) {
	x := &XSK{fd: -1}
	err := e.NS.Do(func() (err error) {
		if x.fd, err = unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		const frame, frames = 4096, 16
		if x.mem, err = unix.Mmap(-1, 0, frame*frames, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
			return err
		}
		if err := registerUmem(x.fd, x.mem, frame); err != nil {
			return err
		}
		for _, ring := range []int{unix.XDP_UMEM_FILL_RING, unix.XDP_UMEM_COMPLETION_RING, unix.XDP_RX_RING} {
			if err := unix.SetsockoptInt(x.fd, unix.SOL_XDP, ring, frames); err != nil {
				return err
			}
		}
		return unix.Bind(x.fd, &unix.SockaddrXDP{Flags: unix.XDP_COPY, Ifindex: uint32(e.Index)})
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening an AF_XDP socket on %s: %w", e.Name, err), x.Close())
	}
	return x, nil
}

// FD is the descriptor, for an XSKMAP.
func (x *XSK) FD() int { return x.fd }

// Taken is how many packets the socket has taken.
func (x *XSK) Taken() (uint64, error) {
	s, err := xdpStatistics(x.fd)
	if err != nil {
		return 0, fmt.Errorf("reading the statistics of an AF_XDP socket: %w", err)
	}
	return s.Rx_dropped, nil
}

// Close closes the socket. Idempotent.
func (x *XSK) Close() error {
	var err error
	if x.fd >= 0 {
		err = unix.Close(x.fd)
	}
	if x.mem != nil {
		err = errors.Join(err, unix.Munmap(x.mem))
	}
	x.fd, x.mem = -1, nil
	return err
}
