//go:build unix

package shm

import (
	"fmt"
	"os"
	"runtime"

	"github.com/edsrzf/mmap-go"
)

// mapping is a part of a file that is mapped, or heap memory in tests. It is unmapped
// when nothing refers to it any more, not earlier: a Counter that is used after its
// Reader was closed reads the last values instead of faulting.
type mapping struct {
	b    []byte
	free func() // unmaps b; nil over a heap region
}

// mapFile maps n bytes of f at offset off. The file may be closed afterwards.
func mapFile(f *os.File, off, n uint64, writable bool) (*mapping, error) {
	prot := mmap.RDONLY
	if writable {
		prot = mmap.RDWR
	}
	b, err := mmap.MapRegion(f, int(n), prot, 0, int64(off))
	if err != nil {
		return nil, fmt.Errorf("%s: mapping %d bytes: %w", f.Name(), n, err)
	}
	m := &mapping{b: b}
	cleanup := runtime.AddCleanup(m, func(b mmap.MMap) { _ = b.Unmap() }, b)
	m.free = func() { cleanup.Stop(); _ = b.Unmap() }
	return m, nil
}

// unmap frees the mappings of a writer, which nothing refers to. The file system gets the space of a
// file without a name back with its last mapping, and the garbage collector does not count that space.
func (v *view) unmap() {
	for _, m := range v.maps {
		m.free()
	}
	for _, s := range *v.list.Load() {
		s.m.free()
	}
}
