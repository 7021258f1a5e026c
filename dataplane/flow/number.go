package flow

import (
	"encoding/binary"
	"math/bits"
)

// Number is an unsigned number of 128 bits. Every field of a header fits into one.
type Number struct{ Hi, Lo uint64 }

// NumberOf returns the number of up to 16 bytes in wire order, such as an address.
func NumberOf(b []byte) Number {
	var wide [16]byte
	copy(wide[16-len(b):], b)
	return Number{binary.BigEndian.Uint64(wide[:8]), binary.BigEndian.Uint64(wide[8:])}
}

// Fill writes the number into b in wire order. It drops the bits for which b has no room.
func (n Number) Fill(b []byte) {
	var wide [16]byte
	binary.BigEndian.PutUint64(wide[:8], n.Hi)
	binary.BigEndian.PutUint64(wide[8:], n.Lo)
	copy(b, wide[16-len(b):])
}

// Compare returns -1, 0 or 1, as [cmp.Compare] does.
func (n Number) Compare(o Number) int {
	switch {
	case n == o:
		return 0
	case n.Hi < o.Hi || n.Hi == o.Hi && n.Lo < o.Lo:
		return -1
	}
	return 1
}

// whole returns the mask of a field of up to 128 bits.
func whole(width int) Number {
	if width >= 64 {
		return Number{uint64(1)<<(width-64) - 1, ^uint64(0)}
	}
	return Number{0, uint64(1)<<width - 1}
}

// power returns the number with one bit.
func power(bit int) Number {
	if bit >= 64 {
		return Number{uint64(1) << (bit - 64), 0}
	}
	return Number{0, uint64(1) << bit}
}

func (n Number) and(o Number) Number    { return Number{n.Hi & o.Hi, n.Lo & o.Lo} }
func (n Number) or(o Number) Number     { return Number{n.Hi | o.Hi, n.Lo | o.Lo} }
func (n Number) xor(o Number) Number    { return Number{n.Hi ^ o.Hi, n.Lo ^ o.Lo} }
func (n Number) andNot(o Number) Number { return Number{n.Hi &^ o.Hi, n.Lo &^ o.Lo} }
func (n Number) isZero() bool           { return n == Number{} }

// next returns n+1, which is 0 after the greatest number.
func (n Number) next() Number {
	lo, carry := bits.Add64(n.Lo, 1, 0)
	return Number{n.Hi + carry, lo}
}

// previous returns n-1. n must not be 0.
func (n Number) previous() Number {
	lo, borrow := bits.Sub64(n.Lo, 1, 0)
	return Number{n.Hi - borrow, lo}
}

// trailingZeros returns how many of the lowest bits are 0: 128 for the number 0.
func (n Number) trailingZeros() int {
	if n.Lo == 0 {
		return 64 + bits.TrailingZeros64(n.Hi)
	}
	return bits.TrailingZeros64(n.Lo)
}

// length returns how many bits it takes to write the number: 0 for the number 0.
func (n Number) length() int {
	if n.Hi != 0 {
		return 64 + bits.Len64(n.Hi)
	}
	return bits.Len64(n.Lo)
}
