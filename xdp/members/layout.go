package members

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Sizes of the tables, as in bpf/members.h.
const (
	lineWords = 8  // a line of the cache
	scanLines = 16 // a key lies within so many lines from its home

	topBits    = 16
	topEntries = 1 << topBits

	levels    = 26 // of IPv6
	mostSlots = 1 << 24
)

// Entries of the top, and codes of a line.
const (
	none = 0
	all  = 1
	some = 2 // an entry of 32 bits has the number of a line, from 2 on
)

// dead marks a slot that was used. Lines behind it may belong to its home.
const dead = 1

// Shape says for how many elements a set has room. A prefix of IPv4 with 25 bits takes the room of four, one with 26 bits that of two.
type Shape struct{ IPv4, IPv6 int }

// MostElements is the most of each version in a Shape.
const MostElements = 1 << 22

// layout has the offsets of the tables, in words from the first. A table that the shape does not need has offset 0.
type layout struct {
	top, lines, slots4 int
	filter, slots6     int
	entries            int
	lineCount          int
	home4, home6       int // bits of the number of a home, which is a line of slots
	filterBits         int // bits of the number of a mask of levels
	entryCount         int
	words              int
}

func (s Shape) layout() layout {
	l := layout{words: lineWords}
	take := func(n int) int {
		at := l.words
		l.words += (n + lineWords - 1) / lineWords * lineWords
		return at
	}
	if s.IPv4 > 0 {
		l.lineCount = min(s.IPv4, topEntries)
		l.top = take(topEntries >> l.topShift())
		l.lines = take(l.lineCount * lineWords)
		l.home4 = homeBits(s.IPv4)
		l.slots4 = take((1<<l.home4 + scanLines - 1) * lineWords)
	}
	if s.IPv6 > 0 {
		l.filterBits = max(bits.Len(uint(s.IPv6-1)), 6)
		l.filter = take(1 << (l.filterBits - 1))
		l.home6 = homeBits(s.IPv6)
		l.slots6 = take((1<<l.home6 + scanLines - 1) * lineWords)
		l.entryCount = s.IPv6 + s.IPv6/16 + 64 // some wait for a grace period
		l.entries = take(2 * l.entryCount)
	}
	return l
}

// flat reports whether there is a line for each 16 bits. The place of a line then does not depend on the top, and programs wait for
// one load less. The top has codes of two bits, which the first level of the cache holds.
func (l *layout) flat() bool { return l.lineCount == topEntries }

// topShift is the binary logarithm of the entries in a word of the top.
func (l *layout) topShift() int {
	if l.flat() {
		return 5
	}
	return 1
}

// homeBits leaves at least half of the slots free.
func homeBits(elements int) int { return max(bits.Len(uint((elements+3)/4-1)), 3) }

// Words returns how many words of memory the tables of a set take. The memory needs [Tail] words more, once for all sets.
func (s Shape) Words() (int, error) {
	if s.IPv4 < 0 || s.IPv6 < 0 || s.IPv4 > MostElements || s.IPv6 > MostElements {
		return 0, fmt.Errorf("sizing a set for %d prefixes of IPv4 and %d of IPv6: %w: at most %d of each", s.IPv4, s.IPv6, ErrInvalid, MostElements)
	}
	return s.layout().words, nil
}

// Tail is the number of words that the memory must have behind the last set: programs read whole lines.
const Tail = lineWords

// Secret keys the hashes. Without it, nobody finds addresses or elements that collide more often than by chance.
type Secret struct {
	Mul  [4]uint64
	Fold uint64 // odd
}

// NewSecret draws a secret.
func NewSecret() Secret {
	var b [40]byte
	rand.Read(b[:]) // never returns an error
	var s Secret
	for i := range s.Mul {
		s.Mul[i] = binary.NativeEndian.Uint64(b[8*i:])
	}
	s.Fold = binary.NativeEndian.Uint64(b[32:]) | 1
	return s
}

func (s *Secret) fold(h uint64) uint64 {
	h ^= h >> 32
	h *= s.Fold
	return h ^ h>>29
}

func (s *Secret) hash4(key uint64) uint64 { return s.fold(key*s.Mul[0] + s.Mul[1]) }

func (s *Secret) hash6(hi, lo uint64) uint64 {
	return s.fold(hi&0xffffffff*s.Mul[0] + hi>>32*s.Mul[1] + lo&0xffffffff*s.Mul[2] + lo>>32*s.Mul[3])
}

func (s *Secret) hashFirst(first uint64) uint64 { return s.fold(first*s.Mul[2] + s.Mul[3]) }

// Constants are struct ft_set of bpf/members.h: what a program knows of a set when it is loaded. Offsets are in bytes.
type Constants struct {
	Mul                 [4]uint64
	Fold                uint64
	Root                uint32 // of the word with the place of the tables, from the start of the memory
	Spare               uint32
	Top, Lines          uint32 // these and the next ones are from the start of the tables
	Slots4, Shift4      uint32
	Filter, FilterShift uint32
	Slots6, Shift6      uint32
	Entries             uint32
	Flat                uint32 // 1: there is a line for each 16 bits
}

// Last returns the constant ft_members_last of bpf/members.h for a memory of so many words.
func Last(words int) uint32 { return uint32((words - lineWords) * 8) }

// Constants returns the constants of all sets of a shape and a secret that are published in the word root of the memory.
func (s Shape) Constants(secret Secret, root int) Constants {
	l := s.layout()
	var flat uint32
	if l.flat() {
		flat = 1
	}
	return Constants{
		Mul:         secret.Mul,
		Fold:        secret.Fold,
		Root:        uint32(root * 8),
		Top:         uint32(l.top * 8),
		Lines:       uint32(l.lines * 8),
		Slots4:      uint32(l.slots4 * 8),
		Shift4:      uint32(64 - l.home4),
		Filter:      uint32(l.filter * 8),
		FilterShift: uint32(64 - l.filterBits),
		Slots6:      uint32(l.slots6 * 8),
		Shift6:      uint32(64 - l.home6),
		Entries:     uint32(l.entries * 8),
		Flat:        flat,
	}
}
