//go:build unix

package shm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// waitPath returns the path of the page of waiters of the mirror at path. That file has the futex word on which waiters sleep.
// Only the writer may write to it. docs/mirror-format.md specifies it.
func waitPath(path string) string { return beside(path, "wait") }

// waitPage is a mapped page of waiters. It stays mapped as long as something refers to the waitPage. The file's owner may cut it
// short, so access its words only under Guard.
type waitPage struct {
	m          *mapping
	id         fileID
	word       *uint32 // the futex
	turn       *uint32 // of the passes over the sleepers
	generation *uint64 // of the writer that wakes
}

// waitState is the content of a page at one time.
type waitState struct {
	word, turn uint32
	generation uint64
}

// pageHeader returns the header of the page, for the writer of that generation.
func pageHeader(generation uint64) []byte {
	b := make([]byte, wpGeneration+8)
	copy(b[wpMagic:], pageMagic)
	binary.NativeEndian.PutUint32(b[wpVersion:], pageVersion)
	binary.NativeEndian.PutUint32(b[wpByteOrder:], byteOrder)
	binary.NativeEndian.PutUint64(b[wpGeneration:], generation)
	return b
}

// mapPage maps the page of waiters in f and checks its header. st is the status of f.
func mapPage(f *os.File, st *unix.Stat_t, writable bool) (*waitPage, error) {
	if st.Size < pageSize {
		return nil, fmt.Errorf("%d bytes of %d: %w", st.Size, pageSize, ErrTruncated)
	}
	m, err := mapFile(f, 0, pageSize, writable)
	if err != nil {
		return nil, err
	}
	p := &waitPage{
		m:          m,
		id:         idOf(st),
		word:       &overlay[uint32](m.b, wpWord, 1)[0],
		turn:       &overlay[uint32](m.b, wpTurn, 1)[0],
		generation: &overlay[uint64](m.b, wpGeneration, 1)[0],
	}
	if !p.begins(pageHeader(0)[:wpGeneration]) {
		return nil, fmt.Errorf("not a page of version %d in this machine's byte order: %w", pageVersion, errors.ErrUnsupported)
	}
	return p, nil
}

// openPage maps the page of waiters of the mirror at path for a waiter. It refuses a page that does not belong to the owner of
// the directory, the only user who may put it there. It must not refuse a file with several names, because other users can add
// names where fs.protected_hardlinks is 0.
func openPage(path string) (*waitPage, error) {
	name := waitPath(path)
	f, st, err := openRegular(name, unix.O_RDONLY)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("%w: the writer makes no page of waiters, or is of an older version: %w", err, errors.ErrUnsupported)
	case errors.Is(err, ErrFormat):
		err = fmt.Errorf("%s: opening the page of waiters: not a regular file: %w", name, ErrPermission)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()

	var dir unix.Stat_t
	if err := unix.Stat(filepath.Dir(name), &dir); err != nil || st.Uid != dir.Uid {
		return nil, fmt.Errorf("%s: opening the page of waiters: it does not belong to the owner of its directory: %w", name, ErrPermission)
	}
	p, err := mapPage(f, st, false)
	if err != nil {
		return nil, fmt.Errorf("%s: opening the page of waiters: %w", name, err)
	}
	return p, nil
}

// begins reports whether the page begins with these bytes. It returns false for a page that was cut short.
func (p *waitPage) begins(header []byte) (is bool) {
	_ = Guard(func() error {
		is = bytes.HasPrefix(p.m.b, header)
		return nil
	})
	return is
}

// load loads the word first, and the turn afterwards: see waker.pass. ErrTruncated: the page was cut short.
func (p *waitPage) load() (s waitState, err error) {
	err = Guard(func() error {
		s.word = atomic.LoadUint32(p.word) // barrier wait-acquire: the word before the value
		s.turn = atomic.LoadUint32(p.turn) // barrier turn-acquire: the turn before the value (idle: futex(2) fences before it compares)
		s.generation = atomic.LoadUint64(p.generation)
		return nil
	})
	return s, err
}

// readerPage caches the page of waiters for all Waits of a Reader.
type readerPage struct {
	mu       sync.Mutex
	page     *waitPage // nil: this process can use none
	of       uint64    // generation of the writer that it was opened for
	openedAt int64
}

// current returns the page of the writer of that generation. It opens the page again if the mirror has another writer, and
// otherwise at most once in longestSleep, which bounds the system calls of a process that may not open it.
func (p *readerPage) current(path string, generation uint64) *waitPage {
	now := Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of != generation || now-p.openedAt >= longestSleep {
		p.of = generation
		p.openedAt = now
		p.page, _ = openPage(path) // without a page the waiter looks once per cycle
	}
	return p.page
}
