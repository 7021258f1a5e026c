package shm

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// waitPath is the page of waiters of the mirror at path: the file with the futex on
// which its waiters sleep. Only the writer may write to it. docs/waiting.md specifies it.
func waitPath(path string) string { return beside(path, "wait") }

// turnBit is the bit of the sleepers of a turn.
func turnBit(turn uint32) uint32 { return 1 << (turn % turns) }

// waitPage is a mapped page of waiters. Its mapping lives as long as the waitPage is
// referred to. Its owner may cut it short, so its words are touched under Guard alone; and
// so are the fields of waitMem, because Go loads from a struct to take a field's address.
type waitPage struct {
	m          *mapping
	word, turn *uint32
	generation *uint64
}

// waitState is what a page said at one time.
type waitState struct {
	word, turn uint32
	generation uint64
}

// load loads the word first, and the turn after it: see waker.pass. ErrTruncated: the
// page was cut short.
func (p *waitPage) load() (s waitState, err error) {
	err = Guard(func() error {
		s.word = atomic.LoadUint32(p.word) // barrier wait-acquire
		s.turn = atomic.LoadUint32(p.turn) // barrier turn-acquire (idle: futex(2) has a full fence before it compares)
		s.generation = atomic.LoadUint64(p.generation)
		return nil
	})
	return s, err
}

// formatPage makes the page in m, which is zero, that of a generation.
func formatPage(m *mapping, generation uint64) *waitPage {
	mem := &overlay[waitMem](m.b, 0, 1)[0]
	copy(mem.magic[:], pageMagic)
	mem.version, mem.byteOrder, mem.generation = pageVersion, byteOrder, generation
	return &waitPage{m, &mem.word, &mem.turn, &mem.generation}
}

// attachPage checks the header of the page in m.
func attachPage(path string, m *mapping) (p *waitPage, err error) {
	err = Guard(func() error {
		mem := &overlay[waitMem](m.b, 0, 1)[0]
		if string(mem.magic[:]) != pageMagic || mem.version != pageVersion || mem.byteOrder != byteOrder {
			return fmt.Errorf("no page of version %d in this machine's byte order: %w", pageVersion, errors.ErrUnsupported)
		}
		p = &waitPage{m, &mem.word, &mem.turn, &mem.generation}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: opening the page of waiters: %w", path, err)
	}
	return p, nil
}

// readerPage is the page of waiters of a Reader's mirror, for all its Waits.
type readerPage struct {
	mu      sync.Mutex
	page    *waitPage // nil: there is none that this process may use
	of      uint64    // generation of the writer that it was opened for
	triedAt int64
}

// current returns the page that was opened for the writer of that generation. It opens
// the page again when the mirror has another writer, and otherwise once in longestSleep
// at most: a process that may not open it makes no more system calls than that.
func (p *readerPage) current(path string, generation uint64) *waitPage {
	now := Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of != generation || now-p.triedAt >= longestSleep {
		p.of, p.triedAt = generation, now
		p.page, _ = openPage(path) // without one the waiter looks once per cycle
	}
	return p.page
}

// drop forgets a page that turned out to be of no use.
func (p *readerPage) drop(page *waitPage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.page == page {
		p.page = nil
	}
}
