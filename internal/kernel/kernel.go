// Package kernel is the border between the counting in XDP and the kernel: maps, links, and network interfaces. The
// packages xdp and dataplane/engine/xdp ask the kernel of the host. A test of the whole engine hands them a Kernel of its
// own, which runs in the memory of the test.
package kernel

import (
	"context"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/flowtally/flowtally/xdp/links"
)

// Kernel stands in for the kernel of the host. No method lies on the path of a packet or of a read.
type Kernel interface {
	// CPUs returns the number of possible CPUs.
	CPUs() (int, error)
	// LockPins makes the directory of the pins and locks it until the file is closed.
	LockPins(dir string) (*os.File, error)
	// NewMap makes an array of one value.
	NewMap(name string, size int) (Map, error)
	// OpenMap opens a pinned map. Without a pin, the error satisfies errors.Is(err, os.ErrNotExist).
	OpenMap(path string) (Map, error)
	// Store is called ahead of each store to the memory of a map by which the next process knows what was lost. It stores
	// nothing: a test ends the process there.
	Store(what string)
	// Wait waits until no program runs that runs now.
	Wait() error

	// Attach puts a program on a hook. A hook that another program holds is unix.EBUSY.
	Attach(Hook) (link.Link, error)
	// OpenLink opens a pinned link, as OpenMap opens a map.
	OpenLink(path string) (link.Link, error)
	// XDPProgram returns the id of the XDP program of an interface, or 0.
	XDPProgram(index int) uint32

	// Interface returns an interface. ok is false if there is none of the name.
	Interface(name string) (i Interface, ok bool)
	// Interfaces lists the names of the interfaces.
	Interfaces() []string
	// Watch is links.Watch.
	Watch(ctx context.Context) (<-chan links.Event, error)
}

// Map is the memory of a map, shared with programs and with every process that opens the map.
type Map interface {
	Pin(path string) error
	Unpin() error
	Close() error
	ValueSize() uint32
	Type() ebpf.MapType
	MaxEntries() uint32
	// Memory returns the value.
	Memory() []byte
}

// Link is what Attach and OpenLink return.
type Link interface {
	link.Link
	// Index returns the index of the interface, or 0 if the link is detached.
	Index() int
	// InNamespace reports whether the interface is in the network namespace of the instance.
	InNamespace() bool
}

// Hook is where a program is to be attached.
type Hook struct {
	Index  int
	Egress bool
	TCX    bool
	Mode   string // as xdp.Attachment.Mode
	Port   uint16 // the number of the interface, as xdp.Attachment.Port
}

// Interface is a network interface.
type Interface struct {
	Index   int
	Name    string
	Kind    string // of a virtual one, as "ip -details link" shows it
	Program uint32 // the id of its XDP program
}
