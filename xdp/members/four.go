package members

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

func address4(p netip.Prefix) uint32 {
	b := p.Addr().As4()
	return binary.BigEndian.Uint32(b[:])
}

// Trees of bits: the node of a prefix is 1<<length plus its bits, so its parent is half of it.

func hasNode(tree []uint64, node uint32) bool { return tree[node/64]>>(node%64)&1 != 0 }
func flipNode(tree []uint64, node uint32)     { tree[node/64] ^= 1 << (node % 64) }

// covered reports whether the node or one above it is in the tree.
func covered(tree []uint64, node uint32) bool {
	for ; node > 0; node /= 2 {
		if hasNode(tree, node) {
			return true
		}
	}
	return false
}

// node16 is the node of a prefix of 17 to 26 bits in its sixteen.
func node16(addr uint32, length int) uint32 {
	return 1<<(length-topBits) | addr<<topBits>>(48-length)
}

// nodeShort is the node of a prefix of up to 16 bits.
func nodeShort(addr uint32, length int) uint32 { return 1<<length | uint32(uint64(addr)>>(32-length)) }

// slot4 returns the slot of an address.
func (s *Set) slot4(addr uint32) (home uint64, place int, ok bool) {
	key := key4(addr)
	home = s.secret.hash4(key) >> (64 - s.layout.home4)
	place, ok = s.find(&s.slots4, home, func(slot uint64) bool { return slot>>32 == key })
	return home, place, ok
}

func (s *Set) has4(p netip.Prefix) bool {
	if s.sixteens == nil {
		return false
	}
	addr, length := address4(p), p.Bits()
	if length <= topBits {
		return hasNode(s.short[:], nodeShort(addr, length))
	}
	x := s.sixteens[addr>>topBits]
	if x == nil {
		return false
	}
	if length <= 26 {
		return hasNode(x.own[:], node16(addr, length))
	}
	_, place, ok := s.slot4(addr)
	return ok && s.slots4.own[place]&ownBit(length-27, addr&31) != 0
}

func (s *Set) add4(p netip.Prefix) (bool, error) {
	if s.sixteens == nil {
		return false, ErrFull
	}
	if s.has4(p) {
		return false, nil
	}
	addr, length := address4(p), p.Bits()
	if length <= topBits {
		flipNode(s.short[:], nodeShort(addr, length))
		s.renewTop(addr, length)
		return true, nil
	}

	x, err := s.lined(addr)
	if err != nil {
		return false, err
	}
	if length > 24 {
		if err := s.makeSlots(x, addr, length); err != nil {
			s.unlined(x, addr)
			return false, err
		}
	}
	x.n++
	switch {
	case length > 26:
		_, place, _ := s.slot4(addr)
		s.slots4.own[place] |= ownBit(length-27, addr&31)
	default:
		flipNode(x.own[:], node16(addr, length))
	}
	// Programs go from the top to a slot, so the stores go the other way.
	if length > 24 {
		s.renewSlots(x, addr, length)
	}
	s.renewLine(x, addr, length)
	s.renewTop(addr, topBits)
	return true, nil
}

func (s *Set) remove4(p netip.Prefix) {
	addr, length := address4(p), p.Bits()
	if length <= topBits {
		flipNode(s.short[:], nodeShort(addr, length))
		s.renewTop(addr, length)
		return
	}

	x := s.sixteens[addr>>topBits]
	x.n--
	if length > 26 {
		_, place, _ := s.slot4(addr)
		s.slots4.own[place] &^= ownBit(length-27, addr&31)
	} else {
		flipNode(x.own[:], node16(addr, length))
	}
	if length > 24 {
		s.renewSlots(x, addr, length)
	}
	s.renewLine(x, addr, length)
	s.unlined(x, addr)
}

// lined returns the sixteen of an address, with a line.
func (s *Set) lined(addr uint32) (*sixteen, error) {
	x := s.sixteens[addr>>topBits]
	if x == nil {
		x = new(sixteen)
		s.sixteens[addr>>topBits] = x
	}
	entry := &s.lineOf[addr>>topBits]
	if *entry != none {
		return x, nil
	}
	if s.layout.flat() {
		*entry = addr>>topBits + some
		return x, nil
	}
	line, ok := take(&s.freeLines, &s.usedLines, s.layout.lineCount)
	if !ok {
		return nil, ErrFull
	}
	*entry = line + some // all its codes are 0
	return x, nil
}

// unlined takes the line from a sixteen without elements.
func (s *Set) unlined(x *sixteen, addr uint32) {
	if x.n > 0 {
		return
	}
	entry := &s.lineOf[addr>>topBits]
	if !s.layout.flat() {
		s.oldLines = append(s.oldLines, *entry-some)
	}
	*entry = none
	s.renewTop(addr, topBits)
}

// each calls f with the first address of each region of so many addresses in a prefix, or with the one that the prefix is in.
func each(addr uint32, length, region int, f func(uint32)) {
	if length >= region {
		f(addr &^ (1<<(32-region) - 1))
		return
	}
	for i := range uint32(1) << (region - length) {
		f(addr | i<<(32-region))
	}
}

// makeSlots makes the slots of a prefix longer than 24 bits, without addresses.
func (s *Set) makeSlots(x *sixteen, addr uint32, length int) error {
	full := false
	each(addr, length, 27, func(a uint32) {
		home, _, ok := s.slot4(a)
		if ok || full {
			return
		}
		place, ok := s.free(&s.slots4, home)
		if !ok || !s.slots4.room() {
			full = true
			return
		}
		s.slots4.used++
		s.store(s.slots4.at+place, key4(a)<<32)
	})
	if !full {
		return nil
	}
	s.renewSlots(x, addr, length) // drops those without addresses
	return ErrFull
}

// renewSlots makes the slots of a prefix longer than 24 bits again from the elements.
func (s *Set) renewSlots(x *sixteen, addr uint32, length int) {
	each(addr, length, 27, func(a uint32) {
		_, place, ok := s.slot4(a)
		if !ok {
			return
		}
		is := spread(s.slots4.own[place])
		if node := node16(a, 26); hasNode(x.own[:], node) || hasNode(x.own[:], node/2) {
			is = 1<<32 - 1
		}
		at := s.slots4.at + place
		if s.words[at]&(1<<32-1) != 0 {
			x.live[a>>8&255]--
		}
		if is == 0 {
			s.drop(&s.slots4, place)
			return
		}
		x.live[a>>8&255]++
		if v := key4(a)<<32 | is; s.words[at] != v {
			s.store(at, v)
		}
	})
}

// renewLine makes the codes of a prefix longer than 16 bits again.
func (s *Set) renewLine(x *sixteen, addr uint32, length int) {
	first := s.base + s.layout.lines + int(s.lineOf[addr>>topBits]-some)*lineWords
	var at int
	var mask, v uint64
	each(addr, length, 24, func(a uint32) {
		code := uint64(none)
		switch {
		case covered(x.own[:], node16(a, 24)):
			code = all
		case x.live[a>>8&255] > 0:
			code = some
		}
		if word := first + int(a>>13&7); word != at {
			s.flushBits(at, mask, v)
			at, mask, v = word, 0, 0
		}
		mask |= 3 << (a >> 7 & 62)
		v |= code << (a >> 7 & 62)
	})
	s.flushBits(at, mask, v)
}

func (s *Set) flushBits(at int, mask, v uint64) {
	if mask != 0 {
		s.setBits(at, mask, v)
	}
}

// renewTop makes the entries of a prefix of up to 16 bits again.
func (s *Set) renewTop(addr uint32, length int) {
	node := nodeShort(addr, min(length, topBits-s.layout.topShift()))
	s.renewBelow(node, covered(s.short[:], node))
}

// renewBelow makes the words of the top below a node again. is says whether an element covers the node. A prefix of 0 bits has all
// words, so this is the longest change.
func (s *Set) renewBelow(node uint32, is bool) {
	shift := s.layout.topShift()
	if node < topEntries>>shift {
		for child := 2 * node; child <= 2*node+1; child++ {
			s.renewBelow(child, is || hasNode(s.short[:], child))
		}
		return
	}

	above := 0
	for i := 1; i <= shift; i++ {
		if first := node << i; s.short[first/64]>>(first%64)&(1<<(1<<i)-1) != 0 {
			above = shift // some prefix longer than the node's covers a part of the word
		}
	}
	width := 64 >> shift
	var word uint64
	for i := range uint32(1) << shift {
		word |= uint64(s.topEntry(node<<shift|i, above, is)) << (int(i) * width)
	}
	s.setBits(s.base+s.layout.top+int(node-topEntries>>shift), ^uint64(0), word)
}

// topEntry returns the entry of a node of 16 bits. is says whether an element covers the node so many lengths above it.
func (s *Set) topEntry(node uint32, above int, is bool) uint32 {
	for i := 0; i < above && !is; i++ {
		is = hasNode(s.short[:], node>>i)
	}
	switch line := s.lineOf[node-topEntries]; {
	case is:
		return all
	case line != none && s.layout.flat():
		return some
	default:
		return line
	}
}

// all4 yields the elements of IPv4.
func (s *Set) all4(yield func(netip.Prefix) bool) bool {
	if s.sixteens == nil {
		return true
	}
	give := func(addr uint32, length int) bool {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], addr)
		return yield(netip.PrefixFrom(netip.AddrFrom4(b), length))
	}
	nodes := func(tree []uint64, addr uint32, above int) bool {
		for i, w := range tree {
			for ; w != 0; w &= w - 1 {
				node := uint32(i*64 + bits.TrailingZeros64(w))
				length := bits.Len32(node) - 1
				below := uint64(node-1<<length) << (32 - above - length)
				if !give(addr|uint32(below), above+length) {
					return false
				}
			}
		}
		return true
	}
	if !nodes(s.short[:], 0, 0) {
		return false
	}
	for i, x := range s.sixteens {
		if x != nil && !nodes(x.own[:], uint32(i)<<topBits, topBits) {
			return false
		}
	}
	for place := range s.slots4.own {
		if own := s.slots4.own[place]; own != 0 {
			key := uint32(s.words[s.slots4.at+place] >> 32)
			if !nodes([]uint64{own}, key<<5, 27) {
				return false
			}
		}
	}
	return true
}
