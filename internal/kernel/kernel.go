// Package kernel is the interface between XDP counting and the kernel: maps, links and network interfaces. By default, packages xdp
// and dataplane/engine/xdp talk to the kernel of the host. Tests of the whole engine pass them another Kernel, which lives in the
// memory of the test.
package kernel

import (
	"context"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/flowtally/flowtally/xdp/links"
)

// Kernel replaces the kernel of the host. Counting a packet and reading a counter call none of its methods.
type Kernel interface {
	// CPUs returns the number of possible CPUs.
	CPUs() (int, error)
	// LockPins creates the directory of the pins, and locks it until the file is closed.
	LockPins(dir string) (*os.File, error)
	// NewMap creates an array with a single value.
	NewMap(name string, size int) (Map, error)
	// OpenMap opens a pinned map. If there is no pin, the error satisfies errors.Is(err, os.ErrNotExist).
	OpenMap(path string) (Map, error)
	// Store is called just before each store to the ledger of outages. Implementations store nothing. A test may end the
	// process here, to check what the next one concludes.
	Store(what string)
	// Wait waits until every program running at the call has ended.
	Wait() error

	// Attach puts a program on a hook. If another program holds the hook, the error is unix.EBUSY.
	Attach(Hook) (link.Link, error)
	// OpenLink opens a pinned link. If there is no pin, the error satisfies errors.Is(err, os.ErrNotExist).
	OpenLink(path string) (link.Link, error)
	// XDPProgram returns the id of the XDP program of an interface, or 0.
	XDPProgram(index int) uint32

	// Interface looks up an interface by its name.
	Interface(name string) (i Interface, ok bool)
	// Interfaces lists the names of all interfaces.
	Interfaces() []string
	// Watch works like links.Watch.
	Watch(ctx context.Context) (<-chan links.Event, error)
}

// Map is a map with a single value. Its memory is shared with programs, and with every process that opens the map.
type Map interface {
	Pin(path string) error
	Unpin() error
	Close() error
	ValueSize() uint32
	Type() ebpf.MapType
	MaxEntries() uint32
	// Memory returns the value itself, not a copy.
	Memory() []byte
}

// Link is the type of the links returned by Attach and OpenLink.
type Link interface {
	link.Link
	// Index returns the index of the interface, or 0 if the link is detached.
	Index() int
	// InNamespace reports whether the interface is in the network namespace of the instance.
	InNamespace() bool
}

// Hook says where and how to attach a program.
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
	Kind    string // for virtual interfaces, as shown by "ip -details link"
	Program uint32 // id of the XDP program, or 0
}
