package tree

import "math/bits"

// boundFields are the fields of the first word of a level that bounds hold: their bits in be64 of the word, and in the
// number of which bpf/tree.h (ft_ports) compares all fields at once, with a free bit above each.
var boundFields = [3]struct{ from, to, bits int }{{48, 0, 16}, {24, 17, 8}, {32, 32, 16}} // source port, protocol, destination port

// AppendBounds appends two words, by which a program tests at once whether the ports and the protocol of a packet are
// within the ranges of a rule and under the leading bits of its masks. key and mask are of the first word of the level.
func AppendBounds(dst []uint64, key, mask uint64, p Ranges) []uint64 {
	key, mask = be64(key), be64(mask)
	var low, high uint64
	for i, r := range [3]Range{p.Src, {}, p.Dst} {
		f := boundFields[i]
		top := uint64(1)<<f.bits - 1
		free := uint64(1)<<bits.Len64(top&^(mask>>f.from)) - 1
		first := key >> f.from & top &^ free
		last := first | free
		if r != (Range{}) {
			first, last = uint64(r.First), uint64(r.Last)
		}
		low |= (top + first) << f.to
		high |= (top - last) << f.to
	}
	return append(dst, low, high)
}

// RangesOf returns the ranges of a level from its bounds. A port under a mask has no range.
func RangesOf(bounds []uint64, mask uint64) Ranges {
	mask = be64(mask)
	of := func(i int) Range {
		f := boundFields[i]
		r := Range{uint16(bounds[0]>>f.to + 1), 0xffff - uint16(bounds[1]>>f.to)}
		if mask>>f.from&0xffff != 0 || r == (Range{0, 0xffff}) {
			return Range{}
		}
		return r
	}
	return Ranges{of(0), of(2)}
}
