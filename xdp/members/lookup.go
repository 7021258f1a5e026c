package members

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"
)

// Lookup reports whether the set that is published in the memory has the address, load for load as the programs do. It may run while
// the set changes.
func Lookup(words []uint64, c *Constants, a netip.Addr) bool {
	return (&reader{words: words, c: c}).has(a)
}

// reader looks an address up.
type reader struct {
	words  []uint64
	c      *Constants
	loaded func() // for tests: called after each load
}

func (r *reader) has(a netip.Addr) bool {
	if a.Is4() {
		b := a.As4()
		return r.has4(binary.BigEndian.Uint32(b[:]))
	}
	b := a.As16()
	return r.has6(binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint64(b[8:]))
}

// load returns the word at an offset in bytes.
func (r *reader) load(at uint64) uint64 {
	v := atomic.LoadUint64(&r.words[at/8])
	if r.loaded != nil {
		r.loaded()
	}
	return v
}

func (r *reader) secret() Secret { return Secret{Mul: r.c.Mul, Fold: r.c.Fold} }

func (r *reader) has4(a uint32) bool {
	c := r.c
	base := r.load(uint64(c.Root))
	if base == 0 || c.Top == 0 {
		return false
	}

	addr := uint64(a)
	var entry, line uint64
	if c.Flat != 0 {
		entry = r.load(base+uint64(c.Top)+addr>>21*8) >> (addr >> 15 & 62) & 3
		line = addr >> 16
	} else {
		entry = r.load(base+uint64(c.Top)+addr>>17*8) >> (addr >> 16 & 1 * 32) & 0xffffffff
		line = entry - some
	}
	if entry <= all {
		return entry == all
	}
	code := r.load(base+uint64(c.Lines)+line*lineWords*8+addr>>13&7*8) >> (addr >> 7 & 62) & 3
	if code <= all {
		return code == all
	}

	s := r.secret()
	key := key4(a)
	at := base + uint64(c.Slots4) + s.hash4(key)>>c.Shift4*lineWords*8
	for range scanLines {
		var slot uint64
		for i := range uint64(lineWords) {
			if slot = r.load(at + 8*i); slot>>32 == key {
				return slot>>(addr&31)&1 != 0
			}
		}
		if slot == 0 {
			break
		}
		at += lineWords * 8
	}
	return false
}

// key4 is the key of the slot of an address. It is never 0.
func key4(a uint32) uint64 { return uint64(a>>5 | 1<<27) }

func (r *reader) has6(hi, lo uint64) bool {
	c := r.c
	base := r.load(uint64(c.Root))
	if base == 0 || c.Filter == 0 {
		return false
	}

	s := r.secret()
	i := s.hashFirst(hi>>32) >> c.FilterShift
	mask := r.load(base) | r.load(base+uint64(c.Filter)+i>>1*8)>>(i&1*32)&0xffffffff
	for level := 0; level < levels && mask != 0; level, mask = level+1, mask>>1 {
		if mask&1 == 0 {
			continue
		}
		khi, klo, bit := split6(hi, lo, level)
		if r.level(base, &s, khi, klo)>>bit&1 != 0 {
			return true
		}
	}
	return false
}

// level returns the bits of the slot of a key.
func (r *reader) level(base uint64, s *Secret, hi, lo uint64) uint64 {
	h := s.hash6(hi, lo)
	at := base + uint64(r.c.Slots6) + h>>r.c.Shift6*lineWords*8
	for range scanLines {
		var slot uint64
		for i := range uint64(lineWords) {
			if slot = r.load(at + 8*i); slot>>56 != tag6(h) {
				continue
			}
			entry := base + uint64(r.c.Entries) + entryOf(slot)*16
			if r.load(entry) == hi && r.load(entry+8) == lo {
				return slot & 0xffffffff
			}
		}
		if slot == 0 {
			break
		}
		at += lineWords * 8
	}
	return 0
}

// tag6 is never 0, so that no free slot has it.
func tag6(h uint64) uint64 { return h&0xff | 1 }

// entryOf returns the number of the entry of a slot.
func entryOf(slot uint64) uint64 { return slot >> 32 & (mostSlots - 1) }

// depth returns how many bits of an address are in the key of a level. The five bits behind them choose a bit of the slot. Of level 0
// those are the first three bits of the address, behind two that are 0.
func depth(level int) int { return 5*level - 2 }

// levelOf returns the level of prefixes of so many bits.
func levelOf(length int) int { return (length + 1) / 5 }

// split6 returns the key of an address in a level, and its bit of the slot. The five last bits of a key, which no level has, are the
// level.
func split6(hi, lo uint64, level int) (khi, klo uint64, bit int) {
	d := depth(level)
	switch {
	case d < 0:
		return 0, 0, int(hi >> 61)
	case d < 60:
		return hi &^ (^uint64(0) >> d), uint64(level), int(hi >> (59 - d) & 31)
	case d < 64:
		return hi &^ (^uint64(0) >> d), uint64(level), int((hi<<4 | lo>>60) & 31)
	}
	return hi, lo&^(^uint64(0)>>(d-64)) | uint64(level), int(lo >> (123 - d) & 31)
}
