package flow

import (
	"math/bits"
	"slices"
)

// Bound is what a flow asks of one property of a packet: of a field, or of something that its clauses imply, such as the
// protocol above IP. The number that a packet has for the property must be in one of Extents.
type Bound struct {
	Property int      // the same in all flows
	Extents  []Extent // one at least, ascending by First
}

// Extent is the numbers from First to Last that have the same bits as First where Mask has ones. First and Last are two of
// them, or the only one.
type Extent struct{ First, Last, Mask Number }

// Properties of a flow, and of a match. The fields of a match follow in the order of the grammar.
const (
	propertyDirection = iota
	propertyInterface
	propertyMatch // the first one of the match
)

const (
	propertyUpper    = iota // the protocol above IP
	propertyComplete        // 1 if no header is cut short
	propertyTagged          // 1 with a VLAN tag
	propertyPart            // of a datagram: the bit of parts
	propertyField           // the first field

	propertyInside = 256 // a match inside a tunnel has its properties this much further up
)

// Bounds returns what f asks of a packet, ascending by Property. No packet matches two flows that have no number in common for
// one property. So an index can tell flows apart without comparing each pair. [Overlap] still has the last word: it knows more.
func (f *Flow) Bounds() []Bound {
	out := make([]Bound, 0, 8)
	out = appendBound(out, propertyDirection, exactly(8, uint32(f.Direction)))
	if name := []byte(f.Interface); len(name) > 0 {
		n := NumberOf(name[:min(len(name), 16)])
		out = appendBound(out, propertyInterface, []Extent{{n, n, whole(128)}})
	}
	return f.Match.appendBounds(out, propertyMatch)
}

// appendBounds appends the bounds of m. base is its first property.
func (m *Match) appendBounds(out []Bound, base int) []Bound {
	out = appendBound(out, base+propertyUpper, exactly(8, m.uppers()...))
	switch {
	case m.Incomplete:
		out = appendBound(out, base+propertyComplete, exactly(1, 0))
	case m.complete():
		out = appendBound(out, base+propertyComplete, exactly(1, 1))
	}
	switch {
	case m.Untagged:
		out = appendBound(out, base+propertyTagged, exactly(1, 0))
	case len(m.VLAN) > 0:
		out = appendBound(out, base+propertyTagged, exactly(1, 1))
	}
	if p := uint(parts(m)); p != partWhole|partFirst|partLater && p != 0 {
		first, last := bits.TrailingZeros(p), bits.Len(p)-1 // the parts of any match are neighbors
		out = appendBound(out, base+propertyPart, []Extent{span{Number{Lo: uint64(first)}, Number{Lo: uint64(last)}}.extent(2)})
	}

	property := base + propertyField
	for i := range clauses {
		c := &clauses[i]
		places, most := 0, 1
		if c.has(m) {
			places = c.times(m)
		}
		if c.name == "vlan" {
			most = maxTags
		}
		for tag := range most {
			for j := range c.fields {
				f := &c.fields[j]
				if numbers := m.implied(c.name, f.name); len(numbers) > 0 {
					out = appendBound(out, property, around(f.bits, numbers))
				} else if tag < places {
					out = appendBound(out, property, f.extents(m, c.name, tag))
				}
				property++
			}
		}
	}
	if in := m.Inner(); in != nil {
		out = in.appendBounds(out, base+propertyInside)
	}
	return out
}

// appendBound appends a bound, unless it has no extents.
func appendBound(out []Bound, property int, extents []Extent) []Bound {
	if len(extents) == 0 {
		return out
	}
	return append(out, Bound{property, extents})
}

// exactly returns the extents of numbers of a width, which must ascend.
func exactly(width int, numbers ...uint32) []Extent {
	out := make([]Extent, len(numbers))
	for i, n := range numbers {
		out[i] = Extent{Number{Lo: uint64(n)}, Number{Lo: uint64(n)}, whole(width)}
	}
	return out
}

// around returns one extent that has all numbers of a list, and may have others: an index has a flow once for each extent, and
// two EtherTypes are not worth that.
func around(width int, numbers []uint32) []Extent {
	differ := uint32(0)
	for _, n := range numbers {
		differ |= n ^ numbers[0]
	}
	return []Extent{{
		Number{Lo: uint64(slices.Min(numbers))}, Number{Lo: uint64(slices.Max(numbers))},
		Number{Lo: uint64(ones(width) &^ differ)},
	}}
}

// extent returns the numbers of a span of a width.
func (s span) extent(width int) Extent {
	return Extent{s.first, s.last, whole(width).andNot(whole(s.first.xor(s.last).length()))}
}

// extents returns the numbers that the match asks of a field. It returns nil if the match does not ask for the field, or excludes
// masks of it. The match must have the clause. propertyPart has the fragments.
func (f *field) extents(m *Match, clause string, tag int) []Extent {
	if f.isFragment() {
		return nil
	}
	all := whole(f.bits)
	if c := m.choice(clause, tag, f.name); c != nil {
		isMask := func(v Value) bool { _, is := v.span(all); return !is }
		if c.Not && slices.ContainsFunc(c.Values, isMask) { // thousands of extents may be left, of nearly all numbers
			return nil
		}
		set, ok := f.setOf(c, mostAlternatives, true)
		if !ok {
			return nil
		}
		out := make([]Extent, 0, len(set.spans)+len(set.masks))
		for _, s := range set.spans {
			out = append(out, s.extent(f.bits))
		}
		for _, v := range set.masks {
			out = append(out, Extent{v.Value, v.Value.or(all.andNot(v.Mask)), v.Mask})
		}
		slices.SortFunc(out, func(a, b Extent) int { return a.First.Compare(b.First) })
		return out
	}

	ref := f.ref(m, tag)
	if !f.asks(ref) {
		return nil
	}
	v := loadValue(ref)
	if !v.Last.isZero() {
		return []Extent{span{v.Value, v.Last}.extent(f.bits)}
	}
	return []Extent{{v.Value, v.Value.or(all.andNot(v.Mask)), v.Mask}}
}

// implied returns the numbers that the clauses of m leave for a field, or nil if they imply none. The match
// may lack the clause of the field: any other match that asks for "ipv4 proto" matches IPv4 alone, and "udp" over that has
// protocol 17.
func (m *Match) implied(clause, field string) (numbers []uint32) {
	switch {
	case clause == "eth" && field == "type":
		for _, n := range m.etherTypes() {
			if m.AdmitsEtherType(uint16(n)) {
				numbers = append(numbers, n)
			}
		}
	case clause == "ipv4" && field == "proto" && m.IPv6 == nil:
		switch upper := m.upper(); upper {
		case 0:
		case upperIPIP:
			for _, n := range ipipProtocols {
				if m.carries(n) {
					numbers = append(numbers, uint32(n))
				}
			}
		default:
			numbers = append(numbers, uint32(protocolNumber(upper, false)))
		}
	case clause == "udp" && field == "dport" && m.TunnelPort() != 0:
		numbers = append(numbers, uint32(m.TunnelPort()))
	}
	return numbers
}

// uppers returns the protocols above IP that a packet of m can have, in ascending order, or nil if it can have any. 0 stands
// for the protocols that have no clause.
func (m *Match) uppers() (out []uint32) {
	if u := m.upper(); u != 0 {
		return []uint32{uint32(u)}
	}
	if m.IPv6 == nil {
		return nil
	}
	admits := func(n uint32) bool { return m.IPv6.NextHeader.admits(n) && m.choiceAdmits("ipv6", "nexthdr", n) }
	if slices.ContainsFunc(extensions, admits) { // behind which any protocol may follow
		return nil
	}
	var uppers uint
	for n := range uint32(256) {
		if admits(n) {
			uppers |= 1 << upperBehindIPv6(n)
		}
	}
	for u := range uint32(upperAH) {
		if uppers>>u&1 != 0 {
			out = append(out, u)
		}
	}
	return out
}

// upperBehindIPv6 returns the protocol above IP of a next header that is no extension, or 0 if it has no clause.
func upperBehindIPv6(next uint32) int {
	if slices.Contains(ipipProtocols[:], uint8(next)) {
		return upperIPIP
	}
	for u := upperTCP; u < upperAH; u++ {
		if u != upperIPIP && uint32(protocolNumber(u, true)) == next {
			return u
		}
	}
	return 0
}
