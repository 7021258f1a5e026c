package flow

import (
	"cmp"
	"slices"
)

// span is a range of numbers, both ends inclusive.
type span struct{ first, last Number }

func bySpan(a, b span) int { return cmp.Or(a.first.Compare(b.first), b.last.Compare(a.last)) }

// span returns the range that v matches in a field with the mask all. ok is false if v has a mask with a bit below a free one,
// which matches no range.
func (v Value) span(all Number) (s span, ok bool) {
	if !v.Last.isZero() {
		return span{v.Value, v.Last}, true
	}
	free := all.andNot(v.Mask)
	if !free.and(free.next()).isZero() {
		return span{}, false
	}
	return span{v.Value, v.Value.or(free)}, true
}

// canonicalValues returns values in ascending order, without those that others contain, and with overlapping ranges joined.
// Other values stay as they are written: 1000-1007 does not become a mask.
func (f *field) canonicalValues(values []Value) []Value {
	type written struct {
		span
		Value
	}
	var spans []written
	var masks []Value
	all := whole(f.bits)
	for _, v := range values {
		v = f.shortest(v)
		if s, ok := v.span(all); ok && (f.hasRanges() || !v.Last.isZero()) { // only ranges can be joined
			spans = append(spans, written{s, v})
		} else {
			masks = append(masks, v)
		}
	}
	masks = unique(masks)

	slices.SortStableFunc(spans, func(a, b written) int { return cmp.Or(bySpan(a.span, b.span), a.Last.Compare(b.Last)) })
	joined := spans[:0]
	for _, s := range spans {
		if n := len(joined); n > 0 && s.first.Compare(joined[n-1].last) <= 0 {
			if before := &joined[n-1]; s.last.Compare(before.last) > 0 {
				before.last = s.last
				before.Value = f.shortest(Value{Value: before.first, Last: s.last})
			}
			continue
		}
		joined = append(joined, s)
	}

	out := make([]Value, 0, len(joined)+len(masks))
	for _, s := range joined {
		if !slices.ContainsFunc(masks, func(m Value) bool { return s.Last.isZero() && m.covers(s.Value) }) {
			out = append(out, s.Value)
		}
	}
	apart := alike(masks)
	for _, v := range masks {
		contained := slices.ContainsFunc(joined, func(s written) bool {
			greatest := v.Value.or(all.andNot(v.Mask))
			return s.first.Compare(v.Value) <= 0 && greatest.Compare(s.last) <= 0
		})
		if !contained && (apart || !slices.ContainsFunc(masks, func(other Value) bool { return other != v && other.covers(v) })) {
			out = append(out, v)
		}
	}
	return unique(out)
}

// unique sorts values and drops those that are there twice.
func unique(values []Value) []Value {
	slices.SortFunc(values, byValue)
	return slices.Compact(values)
}

// alike reports whether values have one mask, so that different ones have no number in common.
func alike(values []Value) bool {
	return !slices.ContainsFunc(values, func(v Value) bool { return v.Mask != values[0].Mask })
}

func byValue(a, b Value) int {
	return cmp.Or(a.Value.Compare(b.Value), a.Mask.Compare(b.Mask), a.Last.Compare(b.Last))
}

// shortest returns a range of one value as that value, and an aligned range of addresses as the prefix.
func (f *field) shortest(v Value) Value {
	if v.Last.isZero() {
		return v
	}
	free := v.Value.xor(v.Last)
	aligned := free.and(free.next()).isZero() && v.Value.and(free).isZero()
	if v.Value == v.Last || f.isAddress() && aligned && free != whole(f.bits) {
		return Value{Value: v.Value, Mask: whole(f.bits).andNot(free)}
	}
	return v
}

// covers reports whether v has every number that other has. Both have masks.
func (v Value) covers(other Value) bool {
	return v.Mask.andNot(other.Mask).isZero() && v.Value.xor(other.Value).and(v.Mask).isZero()
}

// valueSet is the numbers that a field may have: those of any span or mask.
type valueSet struct {
	spans []span  // ascending, neither overlapping nor adjacent
	masks []Value // may have numbers in common
}

// setOf returns the numbers of a choice. ok is false for a named set, and if an exclusion needs more than most masks, as only masks
// that leave bits in between free can. inRanges says whether values of fields without ranges may be spans, too: that is fast to
// compare, but the prefixes of neighbours would be many masks for a classifier, where exact values are one.
func (f *field) setOf(c *Choice, most int, inRanges bool) (s valueSet, ok bool) {
	if c.Set != "" {
		return valueSet{}, false
	}
	// Overlap comes here for each pair of flows, with sets of any size.
	all := whole(f.bits)
	s.spans = make([]span, 0, len(c.Values))
	for i := range c.Values {
		if r, is := c.Values[i].span(all); is && (inRanges || !c.Values[i].Last.isZero()) {
			s.spans = append(s.spans, r)
		} else {
			s.masks = append(s.masks, c.Values[i])
		}
	}
	s.spans = joinSpans(s.spans)
	switch {
	case c.Not && len(s.masks) > 0:
		s.masks, ok = f.disjoint(s, true, most)
		return valueSet{masks: s.masks}, ok
	case c.Not:
		s.spans = f.complement(s.spans)
	}
	return s, true
}

// joinSpans sorts spans and joins those that overlap or touch.
func joinSpans(spans []span) []span {
	byFirst := func(a, b span) int { return a.first.Compare(b.first) }
	if !slices.IsSortedFunc(spans, byFirst) {
		slices.SortFunc(spans, byFirst)
	}
	joined := spans[:0]
	for _, s := range spans {
		n := len(joined)
		if n > 0 && (s.first.Compare(joined[n-1].last) <= 0 || s.first == joined[n-1].last.next()) {
			if s.last.Compare(joined[n-1].last) > 0 {
				joined[n-1].last = s.last
			}
			continue
		}
		joined = append(joined, s)
	}
	return joined
}

// complement returns the numbers of the field that are in no span. The spans are those of joinSpans.
func (f *field) complement(spans []span) []span {
	out := make([]span, 0, len(spans)+1)
	from := Number{}
	for _, s := range spans {
		if from.Compare(s.first) < 0 {
			out = append(out, span{from, s.first.previous()})
		}
		if s.last == whole(f.bits) {
			return out
		}
		from = s.last.next()
	}
	return append(out, span{from, whole(f.bits)})
}

// prefixes yields the fewest masked values of a width that cover a span, in ascending order. Each is an aligned power of two. The
// span of all numbers becomes its two halves: one mask of 0 would also match packets without the field.
func prefixes(width int, s span) func(yield func(Value) bool) {
	return func(yield func(Value) bool) {
		for at := s.first; ; {
			size := min(at.trailingZeros(), width-1)
			for size > 0 && at.or(whole(size)).Compare(s.last) > 0 {
				size--
			}
			if !yield(Value{Value: at, Mask: whole(width).andNot(whole(size))}) {
				return
			}
			end := at.or(whole(size))
			if end.Compare(s.last) >= 0 {
				return
			}
			at = end.next()
		}
	}
}

// pieces returns values that the field itself can hold, of which no two have a number in common, and which together are the
// numbers of the choice. ok is false if there are more than most, and for a named set.
func (f *field) pieces(c *Choice, most int) (out []Value, ok bool) {
	set, ok := f.setOf(c, most, f.hasRanges())
	if !ok {
		return nil, false
	}
	if len(set.masks) > 0 {
		if !c.Not {
			return f.disjoint(set, false, most)
		}
		return set.masks, true
	}
	if f.isPort() {
		for _, s := range set.spans {
			v := Value{Value: s.first, Last: s.last}
			if s.first == s.last { // also port 0, which is no range
				v = Value{Value: s.first, Mask: whole(f.bits)}
			}
			out = append(out, v)
		}
		return out, len(out) <= most
	}
	for _, s := range set.spans {
		for v := range prefixes(f.bits, s) {
			if out = append(out, v); len(out) > most {
				return nil, false
			}
		}
	}
	return out, true
}

// disjoint returns the numbers of s, or with not all others, as masks of which no two have a number in common. ok is false if
// there are more than most, or if it takes too long to tell: masks may cut one another into many parts that others contain.
func (f *field) disjoint(s valueSet, not bool, most int) (out []Value, ok bool) {
	masks := slices.Clone(s.masks)
	for _, r := range s.spans {
		for v := range prefixes(f.bits, r) {
			masks = append(masks, v)
		}
	}
	work := 0
	if not {
		out = slices.Collect(prefixes(f.bits, span{last: whole(f.bits)}))
		for _, m := range masks {
			work += len(out)
			if out = f.cut(out, m); len(out) > most || work > most*most {
				return nil, false
			}
		}
		return out, true
	}
	if alike(masks) {
		out = unique(masks)
		return out, len(out) <= most
	}
	for _, m := range masks {
		fresh := []Value{m}
		for _, v := range out {
			work += len(fresh)
			if fresh = f.cut(fresh, v); len(fresh)+len(out) > most || work > most*most {
				return nil, false
			}
		}
		out = append(out, fresh...)
	}
	return out, len(out) <= most
}

// cut returns the numbers of values that other does not have. Values that have none of it stay as they are.
func (f *field) cut(values []Value, other Value) []Value {
	at := slices.IndexFunc(values, other.meets)
	if at < 0 {
		return values
	}
	rest := slices.Clone(values[:at])
	for _, v := range values[at:] {
		if other.meets(v) {
			rest = append(rest, f.without(v, other)...)
		} else {
			rest = append(rest, v)
		}
	}
	return rest
}

// meets reports whether some number is in both. Both have masks.
func (v Value) meets(other Value) bool {
	return v.Value.xor(other.Value).and(v.Mask).and(other.Mask).isZero()
}

// without returns the numbers that v has and other has not, as masks that have no number in common. The two must meet.
func (f *field) without(v, other Value) (out []Value) {
	for bit := f.bits - 1; bit >= 0; bit-- {
		one := power(bit)
		if other.Mask.and(one).isZero() || !v.Mask.and(one).isZero() {
			continue
		}
		v.Mask = v.Mask.or(one)
		differs := v
		differs.Value = v.Value.or(one.andNot(other.Value))
		out = append(out, differs)
		v.Value = v.Value.or(one.and(other.Value))
	}
	return out
}

// mostCompared bounds the work of meetMasks: Overlap compares pairs of flows, of which there may be many.
const mostCompared = 1 << 16

// meetSets reports whether some number is in both sets. It returns true if it would take long to tell.
func (f *field) meetSets(a, b valueSet) bool {
	for i, j := 0, 0; i < len(a.spans) && j < len(b.spans); {
		switch x, y := a.spans[i], b.spans[j]; {
		case x.last.Compare(y.first) < 0:
			i++
		case y.last.Compare(x.first) < 0:
			j++
		default:
			return true
		}
	}
	return f.meetMasks(a.masks, b) || f.meetMasks(b.masks, valueSet{spans: a.spans})
}

func (f *field) meetMasks(masks []Value, other valueSet) bool {
	if len(masks)*(len(other.masks)+len(other.spans)) > mostCompared {
		return true
	}
	for _, m := range masks {
		for _, v := range other.masks {
			if m.meets(v) {
				return true
			}
		}
		for _, s := range other.spans {
			if first, ok := firstFrom(f.bits, s.first, m); ok && first.Compare(s.last) <= 0 {
				return true
			}
		}
	}
	return false
}

// firstFrom returns the smallest number n >= from of a width with n&mask == value, if there is one.
func firstFrom(width int, from Number, m Value) (Number, bool) {
	if from.and(m.Mask) == m.Value {
		return from, true
	}
	// A number above from agrees with it down to some bit, where it has 1 and from has 0. The lower that bit, the smaller the
	// number. The bits below are as small as the mask allows.
	for bit := range width {
		one := power(bit)
		below := whole(bit)
		above := whole(width).andNot(below.or(one))
		if !from.and(one).isZero() || !m.Mask.and(one).isZero() && m.Value.and(one).isZero() ||
			!from.xor(m.Value).and(m.Mask).and(above).isZero() {
			continue
		}
		return from.and(above).or(one).or(m.Value.and(below)), true
	}
	return Number{}, false
}
