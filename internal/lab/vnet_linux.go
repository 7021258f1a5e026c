package lab

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// VnetHeader is a struct virtio_net_hdr (linux/virtio_net.h). A guest, or a program at a tap or a PACKET_VNET_HDR
// socket, describes a buffer with it. Lengths and offsets are in bytes.
type VnetHeader struct {
	Flags      uint8
	GSOType    uint8
	HeaderLen  uint16
	GSOSize    uint16
	CsumStart  uint16
	CsumOffset uint16
}

// Buffer returns the header with the frame behind it.
func (h VnetHeader) Buffer(frame []byte) []byte {
	b := make([]byte, 10, 10+len(frame))
	b[0] = h.Flags
	b[1] = h.GSOType
	for i, v := range []uint16{h.HeaderLen, h.GSOSize, h.CsumStart, h.CsumOffset} {
		binary.NativeEndian.PutUint16(b[2+2*i:], v)
	}
	return append(b, frame...)
}

// VnetSocket sends buffers through the egress hook of an end. A frame above a page has HeaderLen linear bytes, and the
// rest in fragments.
type VnetSocket struct{ fd int }

// NewVnetSocket opens a PACKET_VNET_HDR socket on e.
func (e *End) NewVnetSocket() (*VnetSocket, error) {
	s := &VnetSocket{fd: -1}
	err := e.NS.Do(func() (err error) {
		if s.fd, err = packetSocket(e.Index, 0); err != nil {
			return err
		}
		return unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1)
	})
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("opening a packet socket with headers of virtio on %s: %w", e.Name, err)
	}
	return s, nil
}

// Send sends a buffer made by VnetHeader.Buffer.
func (s *VnetSocket) Send(buffer []byte) error {
	if _, err := unix.Write(s.fd, buffer); err != nil {
		return fmt.Errorf("sending a buffer of %d bytes: %w", len(buffer), err)
	}
	return nil
}

// Close closes the socket. Idempotent.
func (s *VnetSocket) Close() error {
	if s.fd < 0 {
		return nil
	}
	err := unix.Close(s.fd)
	s.fd = -1
	return err
}
