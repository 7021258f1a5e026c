//go:build unix

package shm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/edsrzf/mmap-go"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/space"
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

// fileStore is a mirror's file.
type fileStore struct {
	*os.File
	writable bool
	space    space.Reserve // nil: fallocate
}

func (s fileStore) window(off, n uint64) (*mapping, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(s.Fd()), &st); err != nil {
		return nil, fmt.Errorf("%s: reading status: %w", s.Name(), err)
	}
	if uint64(st.Size) < off+n {
		if err := s.foreign(); off == 0 && err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%d of %d bytes are there: %w", st.Size, off+n, ErrTruncated)
	}
	return mapFile(s.File, off, n, s.writable)
}

// foreign returns the error for a short file that never was a mirror, or nil. An empty file may have become one.
func (s fileStore) foreign() error {
	first := make([]byte, len(Magic))
	n, err := s.ReadAt(first, 0)
	if err != nil && !errors.Is(err, io.EOF) || string(first[:n]) == Magic[:n] {
		return nil
	}
	return foreign(first[:n])
}

// fileID tells one file from another, as long as a process has it open or mapped.
type fileID struct{ dev, ino uint64 }

// idOf returns the identity of a file whose status is st.
func idOf(st *unix.Stat_t) fileID { return fileID{dev: uint64(st.Dev), ino: st.Ino} }
