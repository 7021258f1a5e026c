package members

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"sync/atomic"
)

var (
	// ErrInvalid is returned for a prefix or a shape that a set cannot have.
	ErrInvalid = errors.New("members: not valid")

	// ErrFull is returned when the set has no room for an element. The set is unchanged. The caller builds a greater set beside it,
	// or calls [Set.Reclaim] after a grace period, if elements went before.
	ErrFull = errors.New("members: no room for another element")

	// ErrFresh is returned for the removal of an element that overlaps one added since the last [Set.Reclaim]: a program under way
	// may have missed the new one, and would miss the old one, too. The set is unchanged. The caller waits for a grace period, calls
	// [Set.Reclaim], and removes the element then.
	ErrFresh = errors.New("members: the element overlaps one that was just added")
)

// Set is a set of prefixes, and its only writer. Its methods are not safe for concurrent use. Programs and [Lookup] may read the memory
// at any time.
type Set struct {
	words  []uint64 // of the memory, from its start
	base   int      // word of the first table
	layout layout
	secret Secret

	// What the set has, beside the tables.
	short    [2 * topEntries / 64]uint64 // IPv4 prefixes of up to 16 bits: a tree of bits, the root is bit 1
	sixteens []*sixteen                  // by the first 16 bits; nil: no longer prefix was ever there
	lineOf   []uint32                    // by the first 16 bits: the entry of the top, unless a prefix of up to 16 bits covers it
	slots4   slots
	slots6   slots
	atLevel  [levels]int       // IPv6 prefixes shorter than 32 bits, by level
	filtered map[uint64]uint32 // by mask and level: elements that need the bit
	n4, n6   int

	freeLines, oldLines     []uint32 // those in old wait for a grace period
	freeEntries, oldEntries []uint32
	usedLines, usedEntries  uint32 // never used from here on

	fresh []netip.Prefix // added since the last grace period, without those behind the first mostFresh+1

	stored func() // for tests: called after each store
}

// mostFresh bounds the search for an overlap, so that a removal is quick. Beyond it, any element may overlap a new one.
const mostFresh = 1024

// sixteen is the part of the set behind 16 bits of IPv4.
type sixteen struct {
	own  [32]uint64 // prefixes of 17 to 26 bits: a tree of bits, whose root is bit 1
	live [256]uint8 // by the next 8 bits: slots with an address
	n    int        // elements of 17 bits and more
}

// New returns an empty set whose tables are in words from base on. Those words are 0. base is not 0, and a multiple of 8.
func New(words []uint64, base int, shape Shape, secret Secret) (*Set, error) {
	n, err := shape.Words()
	if err != nil {
		return nil, err
	}
	if err := checkPlace(words, base, n); err != nil {
		return nil, err
	}

	l := shape.layout()
	s := &Set{words: words, base: base, layout: l, secret: secret}
	if shape.IPv4 > 0 {
		s.sixteens = make([]*sixteen, topEntries)
		s.lineOf = make([]uint32, topEntries)
		s.slots4 = newSlots(base+l.slots4, l.home4)
	}
	if shape.IPv6 > 0 {
		s.filtered = make(map[uint64]uint32)
		s.slots6 = newSlots(base+l.slots6, l.home6)
	}
	return s, nil
}

// checkPlace returns an error if the memory has no room for n words of tables from base on.
func checkPlace(words []uint64, base, n int) error {
	if base <= 0 || base%lineWords != 0 || base+n+Tail > len(words) {
		return fmt.Errorf("placing %d words of tables at word %d of %d: %w", n, base, len(words), ErrInvalid)
	}
	return nil
}

// CopyTo copies the tables into another memory, from base on, and returns the set there. Programs find the same elements in either
// memory. From then on the caller changes only one of the two sets: they share what a set keeps beside its tables.
func (s *Set) CopyTo(words []uint64, base int) (*Set, error) {
	n := s.layout.words
	if err := checkPlace(words, base, n); err != nil {
		return nil, err
	}
	copy(words[base:][:n], s.words[s.base:])

	other := *s
	other.words, other.base = words, base
	if other.slots4.own != nil {
		other.slots4.at = base + s.layout.slots4
	}
	if other.slots6.own != nil {
		other.slots6.at = base + s.layout.slots6
	}
	return &other, nil
}

// Publish makes the set the one that programs find under the word root. The set of before is theirs no more after a grace period.
func (s *Set) Publish(root int) { atomic.StoreUint64(&s.words[root], uint64(s.base)*8) }

// Retract makes the set of the word root an empty one.
func Retract(words []uint64, root int) { atomic.StoreUint64(&words[root], 0) }

// Len returns the number of elements.
func (s *Set) Len() int { return s.n4 + s.n6 }

// Add adds an element. It returns false if the set has it.
func (s *Set) Add(p netip.Prefix) (bool, error) {
	if !p.IsValid() {
		return false, fmt.Errorf("adding prefix %v: %w", p, ErrInvalid)
	}
	p = p.Masked()
	add := s.add6
	if p.Addr().Is4() {
		add = s.add4
	}
	added, err := add(p)
	if err != nil {
		return false, fmt.Errorf("adding prefix %v: %w", p, err)
	}
	if added {
		s.note(p)
	}
	return added, nil
}

// note keeps an element that programs under way may have missed.
func (s *Set) note(p netip.Prefix) {
	if p.Addr().Is4() {
		s.n4++
	} else {
		s.n6++
	}
	if len(s.fresh) <= mostFresh {
		s.fresh = append(s.fresh, p)
	}
}

// Remove removes an element. It returns false if the set does not have it. What other elements cover stays.
func (s *Set) Remove(p netip.Prefix) (bool, error) {
	if !p.IsValid() {
		return false, fmt.Errorf("removing prefix %v: %w", p, ErrInvalid)
	}
	p = p.Masked()
	if !s.Has(p) {
		return false, nil
	}
	if s.overlapsFresh(p) {
		return false, fmt.Errorf("removing prefix %v: %w", p, ErrFresh)
	}

	if p.Addr().Is4() {
		s.remove4(p)
		s.n4--
	} else {
		s.remove6(p)
		s.n6--
	}
	return true, nil
}

func (s *Set) overlapsFresh(p netip.Prefix) bool {
	if len(s.fresh) > mostFresh {
		return true
	}
	for _, f := range s.fresh {
		if f.Overlaps(p) {
			return true
		}
	}
	return false
}

// Reclaim frees the memory of removed elements. The caller has waited for a grace period since the last change.
func (s *Set) Reclaim() {
	s.fresh = s.fresh[:0]
	s.freeLines = append(s.freeLines, s.oldLines...)
	s.oldLines = s.oldLines[:0]
	s.freeEntries = append(s.freeEntries, s.oldEntries...)
	s.oldEntries = s.oldEntries[:0]
}

// Has reports whether the prefix itself is an element.
func (s *Set) Has(p netip.Prefix) bool {
	p = p.Masked()
	if p.Addr().Is4() {
		return s.has4(p)
	}
	return s.has6(p)
}

// All returns the elements, in no order.
func (s *Set) All() iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		_ = s.all4(yield) && s.all6(yield)
	}
}

// store stores a word for programs.
func (s *Set) store(at int, v uint64) {
	atomic.StoreUint64(&s.words[at], v)
	if s.stored != nil {
		s.stored()
	}
}

// setBits replaces the bits of a word under a mask, if they differ.
func (s *Set) setBits(at int, mask, v uint64) {
	was := s.words[at]
	if now := was&^mask | v; now != was {
		s.store(at, now)
	}
}

// take returns a number that is free, or the next that was never used below most.
func take(free *[]uint32, used *uint32, most int) (uint32, bool) {
	if n := len(*free); n > 0 {
		number := (*free)[n-1]
		*free = (*free)[:n-1]
		return number, true
	}
	if int(*used) >= most {
		return 0, false
	}
	*used++
	return *used - 1, true
}
