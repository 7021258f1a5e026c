//go:build unix

package shm

import (
	"fmt"
	"os"
	"runtime"

	"github.com/edsrzf/mmap-go"
)

// mapping is a mapped part of a file, or heap memory in tests. The garbage collector unmaps it once nothing refers to it. So a
// HandleCounter that outlives its Reader reads the last values instead of faulting.
type mapping struct {
	b    []byte
	free func() // unmaps b at once; nil over a heap region
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
	m.free = func() {
		cleanup.Stop()
		_ = b.Unmap()
	}
	return m, nil
}

// unmap unmaps the mirror of a writer at once. Nothing may use its memory afterwards. A removed file takes space on the tmpfs
// until its last mapping ends, and the garbage collector, which does not see that space, may let it take very long.
func (v *view) unmap() {
	for _, m := range v.maps {
		m.free()
	}
	for _, s := range *v.list.Load() {
		s.m.free()
	}
}
