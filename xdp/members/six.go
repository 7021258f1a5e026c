package members

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// filterLength is how many bits of an address choose its mask of levels. Shorter elements are in the mask of all addresses.
const filterLength = 32

// place6 says where an element of IPv6 is.
type place6 struct {
	hi, lo uint64 // the key
	hash   uint64 // of the key
	own    uint64 // the element in the slot's own word
	level  int
	short  bool
	mask   uint64 // the number of its mask of levels, unless short
}

func (s *Set) place6(p netip.Prefix) place6 {
	b := p.Addr().As16()
	hi, lo := binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint64(b[8:])
	level := levelOf(p.Bits())
	khi, klo, bit := split6(hi, lo, level)
	h := s.secret.hash6(khi, klo)
	return place6{
		hi:    khi,
		lo:    klo,
		hash:  h,
		own:   ownBit(p.Bits()-depth(level), uint32(bit)),
		level: level,
		short: p.Bits() < filterLength,
		mask:  s.secret.hashFirst(hi>>32) >> (64 - s.layout.filterBits),
	}
}

// slot6 returns the slot of a key.
func (s *Set) slot6(k *place6) (place int, ok bool) {
	entries := s.base + s.layout.entries
	return s.find(&s.slots6, k.home(s), func(slot uint64) bool {
		entry := entries + 2*int(entryOf(slot))
		return slot>>56 == tag6(k.hash) && s.words[entry] == k.hi && s.words[entry+1] == k.lo
	})
}

func (k *place6) home(s *Set) uint64 { return k.hash >> (64 - s.layout.home6) }

func (s *Set) has6(p netip.Prefix) bool {
	if s.filtered == nil {
		return false
	}
	k := s.place6(p)
	place, ok := s.slot6(&k)
	return ok && s.slots6.own[place]&k.own != 0
}

func (s *Set) add6(p netip.Prefix) (bool, error) {
	if s.filtered == nil {
		return false, ErrFull
	}
	k := s.place6(p)
	place, ok := s.slot6(&k)
	if ok && s.slots6.own[place]&k.own != 0 {
		return false, nil
	}

	var slot uint64
	if ok {
		slot = s.words[s.slots6.at+place] >> 32 << 32
	} else {
		if place, ok = s.free(&s.slots6, k.home(s)); !ok || !s.slots6.room() {
			return false, ErrFull
		}
		number, ok := take(&s.freeEntries, &s.usedEntries, s.layout.entryCount)
		if !ok {
			return false, ErrFull
		}
		entry := s.base + s.layout.entries + 2*int(number)
		s.store(entry, k.hi)
		s.store(entry+1, k.lo)
		slot = tag6(k.hash)<<56 | uint64(number)<<32
		s.slots6.used++
	}
	s.slots6.own[place] |= k.own
	s.store(s.slots6.at+place, slot|spread(s.slots6.own[place]))
	s.count(&k, 1)
	return true, nil
}

func (s *Set) remove6(p netip.Prefix) {
	k := s.place6(p)
	place, _ := s.slot6(&k)
	s.slots6.own[place] &^= k.own
	at := s.slots6.at + place
	if own := s.slots6.own[place]; own != 0 {
		s.store(at, s.words[at]>>32<<32|spread(own))
	} else {
		s.oldEntries = append(s.oldEntries, uint32(entryOf(s.words[at])))
		s.drop(&s.slots6, place)
	}
	s.count(&k, -1)
}

// count notes that an element of a level came or went, and sets or clears the bit of the level in the masks that it needs.
func (s *Set) count(k *place6, by int) {
	at, shift := s.base, uint64(0)
	var n int
	if k.short {
		s.atLevel[k.level] += by
		n = s.atLevel[k.level]
	} else {
		key := k.mask<<5 | uint64(k.level)
		n = int(s.filtered[key]) + by
		s.filtered[key] = uint32(n)
		if n == 0 {
			delete(s.filtered, key)
		}
		at, shift = s.base+s.layout.filter+int(k.mask/2), k.mask&1*32
	}
	bit := uint64(1) << k.level << shift
	if n > 0 {
		s.setBits(at, bit, bit)
	} else {
		s.setBits(at, bit, 0)
	}
}

// all6 yields the elements of IPv6.
func (s *Set) all6(yield func(netip.Prefix) bool) bool {
	for place, own := range s.slots6.own {
		if own == 0 {
			continue
		}
		entry := s.base + s.layout.entries + 2*int(entryOf(s.words[s.slots6.at+place]))
		hi, lo := s.words[entry], s.words[entry+1]
		level := int(lo & 31)
		for ; own != 0; own &= own - 1 {
			node := bits.TrailingZeros64(own)
			length := bits.Len(uint(node)) - 1
			if !yield(prefix6(hi, lo&^31, level, length, uint64(node-1<<length)<<(5-length))) {
				return false
			}
		}
	}
	return true
}

// prefix6 returns the prefix of a key and five bits behind it.
func prefix6(hi, lo uint64, level, length int, five uint64) netip.Prefix {
	d := depth(level)
	switch {
	case d < 60: // of level 0, too: its first two bits are 0
		hi |= five << (59 - d)
	case d < 64:
		hi |= five >> 4
		lo |= five << 60
	default:
		lo |= five << (123 - d)
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], hi)
	binary.BigEndian.PutUint64(b[8:], lo)
	return netip.PrefixFrom(netip.AddrFrom16(b), d+length)
}
