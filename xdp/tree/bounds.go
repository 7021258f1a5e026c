package tree

import "math/bits"

// boundFields locates source port, protocol and destination port in the first word of a level. from is the position in be64 of that
// word. to is the position in the number returned by ft_ports of bpf/tree.h. A spare bit above each field catches carries and
// borrows (FT_GUARDS), so an addition and a subtraction compare all three fields.
var boundFields = [3]struct{ from, to, bits int }{{48, 0, 16}, {24, 17, 8}, {32, 32, 16}} // source port, protocol, destination port

// AppendBounds appends two words. With them, a program tests ports and protocol of a packet at once, against the ranges of a rule and
// the leading bits of its masks. key and mask are the first words of the level.
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

// RangesOf recovers the ranges of a level from its bounds. mask is needed because a masked port has bounds, too, but no range.
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
