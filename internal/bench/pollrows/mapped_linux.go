package pollrows

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/bench"
)

// wireMemory is struct wire of bpf/wire.bpf.c.
type wireMemory struct {
	said    atomic.Uint64
	_       [15]uint64
	slot    [wireSlots]atomic.Uint64
	counted atomic.Uint64
	at      atomic.Int64
	_       [6]uint64
}

// mapped maps the section of the program until open is closed.
func mapped(open *bench.Closers, section *ebpf.Map) (*wireMemory, error) {
	b, err := unix.Mmap(section.FD(), 0, int(unsafe.Sizeof(wireMemory{})), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping the memory of the bench's program: %w", err)
	}
	open.Add(func() error { return unix.Munmap(b) })
	return (*wireMemory)(unsafe.Pointer(&b[0])), nil // of a page: aligned
}
