package shm

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// store is what a mirror is stored in: a file, or heap memory in tests.
type store interface {
	// window maps n bytes at offset off. ErrTruncated: the file is too short.
	window(off, n uint64) (*mapping, error)
	// reserve appends n zero bytes to a file that ends at off, and reserves their space.
	reserve(off, n uint64) error
	// nextWritten returns the end of the hole of zeros at off, or off if there is no hole.
	nextWritten(off uint64) uint64
	Close() error
}

// view is a mirror, mapped by a reader or by its writer: the header, the ring, and the segments so far.
//
// The memory stays mapped only while something refers to the view. Code that uses a pointer into the memory must
// therefore call runtime.KeepAlive on the view, or on its owner, after the last use.
type view struct {
	fixed   fixedMem // the copy that was checked
	hdr     *headerMem
	history []historyMem
	maps    []*mapping // of the header and the ring

	// list is replaced by a longer one under mu, when a segment is mapped. A list itself never changes, so readers need no
	// lock.
	list   atomic.Pointer[[]*segment]
	mu     sync.Mutex
	store  store
	closed bool
}

// segment is a mapped segment. Either blocks or records is nil.
type segment struct {
	kind    uint32
	entries *[SegmentLen]entryMem
	blocks  *blocksMem
	records *recordsMem
	m       *mapping
}

// attach validates the header of a mirror and maps its ring.
func attach(s store) (*view, error) {
	head, err := s.window(0, headerSize)
	if err != nil {
		return nil, err
	}
	h, err := overlayHeader(head.b)
	if err != nil {
		return nil, err
	}
	fixed, err := h.fixed()
	if err != nil {
		return nil, err
	}
	return newView(s, head, fixed)
}

// newView maps the ring of a mirror whose header is mapped and was checked.
func newView(s store, head *mapping, fixed fixedMem) (*view, error) {
	h, err := overlayHeader(head.b)
	if err != nil {
		return nil, err
	}

	v := &view{
		store: s,
		hdr:   h,
		fixed: fixed,
		maps:  []*mapping{head},
	}
	v.list.Store(new([]*segment))

	n := fixed.history
	if n == 0 {
		return v, nil
	}
	ring, err := s.window(headerSize, ringLength(n))
	if err != nil {
		return nil, err
	}
	v.maps = append(v.maps, ring)
	v.history = overlay[historyMem](ring.b, 0, n)
	return v, nil
}

// close ends the mapping of further segments.
func (v *view) close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil
	}
	v.closed = true
	return v.store.Close()
}

// declared returns the number of segments according to the header (barrier segments-acquire: the number before the segments).
func (v *view) declared() int { return int(min(atomic.LoadUint32(&v.hdr.segments), maxSegments)) }

// segments returns all segments that the header declares. If one cannot be mapped, it returns those before it and an error.
func (v *view) segments() ([]*segment, error) {
	list, n := *v.list.Load(), v.declared()
	if n <= len(list) {
		return list, nil
	}
	return v.extend(n)
}

// extend maps segments until there are n.
func (v *view) extend(n int) ([]*segment, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	list := *v.list.Load()
	if n <= len(list) {
		return list, nil
	}

	longer := make([]*segment, len(list), n)
	copy(longer, list)
	var err error
	for len(longer) < n {
		var s *segment
		if s, err = v.mapSegment(uint32(len(longer))); err != nil {
			break
		}
		longer = append(longer, s)
	}
	v.list.Store(&longer)
	return longer, err
}

func (v *view) mapSegment(n uint32) (*segment, error) {
	if v.closed {
		return nil, ErrClosed
	}
	kind := atomic.LoadUint32(&v.hdr.table[n].kind) // load it only once, because a hostile writer may change it
	if kind != kindBlocks && kind != kindRecords {
		return nil, fmt.Errorf("segment %d is of kind %d: %w", n, kind, ErrFormat)
	}
	m, err := v.store.window(segmentOffset(v.fixed.history, n), segmentSize)
	if err != nil {
		return nil, fmt.Errorf("mapping segment %d: %w", n, err)
	}
	return newSegment(kind, m), nil
}

// newSegment returns the segment of that kind in m.
func newSegment(kind uint32, m *mapping) *segment {
	s := &segment{kind: kind, m: m}
	if kind == kindRecords {
		s.records = &overlay[recordsMem](m.b, 0, 1)[0]
		s.entries = &s.records.entries
		return s
	}
	s.blocks = &overlay[blocksMem](m.b, 0, 1)[0]
	s.entries = &s.blocks.entries
	return s
}

// high returns the high-water mark of segment n: slots from there on were never used.
func (v *view) high(n int) uint32 { return min(atomic.LoadUint32(&v.hdr.table[n].high), SegmentLen) }

// blocksUsed returns the number of blocks that have a slot below a high-water mark.
func blocksUsed(high uint32) uint32 { return (high + BlockLen - 1) / BlockLen }

// eachUsed calls fn for every slot that was ever used, by index.
func (v *view) eachUsed(fn func(i uint32, p place)) error {
	list, err := v.segments()
	for n, s := range list {
		for k := range v.high(n) {
			fn(uint32(n)*SegmentLen+k, place{s, k})
		}
	}
	return err
}

// stale returns ErrStale if the writer has given the file up.
func (v *view) stale() error {
	if atomic.LoadUint64(&v.hdr.replaced) != 0 {
		return ErrStale
	}
	return nil
}

// overwritten reports whether the header has changed since it was checked.
func (v *view) overwritten() bool {
	return atomic.LoadUint64(&v.hdr.checksum) != v.fixed.checksum
}

// place is where a counter is: slot n of segment s.
type place struct {
	s *segment
	n uint32
}

// place returns the place of index i. It maps the segment if nobody has yet. ErrGone: no segment has this index.
func (v *view) place(i uint32) (place, error) {
	n := int(i / SegmentLen)
	list := *v.list.Load()
	if n >= len(list) {
		if n >= v.declared() {
			return place{}, ErrGone
		}
		var err error
		if list, err = v.extend(n + 1); err != nil {
			return place{}, err
		}
	}
	return place{list[n], i % SegmentLen}, nil
}

func (p place) entry() *entryMem { return &p.s.entries[p.n] }

func (p place) latency() bool { return p.s.kind == kindRecords }

// live reports whether h names a live counter. p must be the place of h.
func (p place) live(h Handle) bool {
	return atomic.LoadUint64(&p.entry().identity) == identity(entLive, h.Generation)
}

func (p place) record() *recordMem { return &p.s.records.records[p.n] }

func (p place) block() block { return block{p.s.blocks, p.n / BlockLen} }

// seq returns the sequence word of the counter's block or record.
func (p place) seq() *uint64 {
	if p.latency() {
		return &p.record().seq
	}
	return p.block().seq()
}

// values returns the counter's value in each of the two copies.
func (p place) values() [2]*Value {
	if p.latency() {
		r := p.record()
		return [2]*Value{&r.slots[0], &r.slots[1]}
	}
	b, row := p.block(), p.n%BlockLen
	return [2]*Value{&b.copy(0).values[row], &b.copy(1).values[row]}
}

// block is one block of a segment.
type block struct {
	m *blocksMem
	n uint32
}

func (b block) seq() *uint64 { return &b.m.seqs[b.n%segmentBlocks].word }

func (b block) intent() *uint64 { return &b.m.intents[b.n%segmentBlocks].word }

// copy returns the copy that sequence word s makes current.
func (b block) copy(s uint64) *copyMem { return &b.m.copies[s&1][b.n%segmentBlocks] }
