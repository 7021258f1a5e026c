package lab

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Tun is a device whose other side is this process. The device receives the frames that the process writes, and
// the process reads the frames that the device sends. A frame of a Tun with Ethernet begins with an Ethernet header,
// any other with an IP header.
type Tun struct {
	*End
	file *os.File
}

// TunOptions shapes a Tun. The zero value is a device of layer 3.
type TunOptions struct {
	Ethernet bool // a tap
	// Virtio puts a struct virtio_net_hdr of 10 bytes before each frame, in both directions.
	Virtio bool
}

// NewTun makes the device in a namespace, up and without an address. It ends with Close, or with the namespace.
func NewTun(ns *Netns, name string, o TunOptions) (*Tun, error) {
	flags := uint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if o.Ethernet {
		flags = unix.IFF_TAP | unix.IFF_NO_PI
	}
	if o.Virtio {
		flags |= unix.IFF_VNET_HDR
	}
	fd := -1
	err := ns.Do(func() (err error) {
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err != nil {
			return fmt.Errorf("opening /dev/net/tun: %w", err)
		}
		ifr, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		ifr.SetUint16(flags)
		return unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr)
	})
	if err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		return nil, fmt.Errorf("making tun device %s: %w", name, err)
	}
	t := &Tun{End: &End{NS: ns, Name: name}, file: os.NewFile(uintptr(fd), name)} // non-blocking: the runtime waits, and deadlines work
	if err := t.up(); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// File is the other side of the device.
func (t *Tun) File() *os.File { return t.file }

// Close removes the device. Idempotent.
func (t *Tun) Close() error {
	if t.file == nil {
		return nil
	}
	err := t.file.Close()
	t.file = nil
	return err
}
