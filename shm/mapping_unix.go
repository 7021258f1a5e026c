//go:build unix

package shm

import (
	"fmt"
	"os"
	"runtime"

	"github.com/edsrzf/mmap-go"
)

// mapping is a mapped file, or heap memory in tests. It is unmapped when
// nothing refers to it any more, not earlier: a Counter that is used after its
// Reader was closed reads the last values instead of faulting.
type mapping struct {
	b  []byte
	id fileID // of a file that a reader opened by its name
}

// mapFile maps size bytes of f. The file may be closed afterwards.
func mapFile(f *os.File, size int64, writable bool) (*mapping, error) {
	prot := mmap.RDONLY
	if writable {
		prot = mmap.RDWR
	}
	b, err := mmap.MapRegion(f, int(size), prot, 0, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: mapping %d bytes: %w", f.Name(), size, err)
	}
	m := &mapping{b: b}
	runtime.AddCleanup(m, func(b mmap.MMap) { _ = b.Unmap() }, b)
	return m, nil
}
