package overlap

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// box bounds packets by several properties: its sides, ascending by property. A packet may have any number for a property
// without a side.
type box []side

// side is the numbers that a box has for one property.
type side struct {
	flow.Extent
	property int32
	set      int32 // in the box of an item: 1 and more is the place in sets of the values that an entry chooses from
}

// meets reports whether some packet may be in both boxes.
func (b box) meets(other box) bool {
	for i, j := 0, 0; i < len(b) && j < len(other); {
		switch x, y := &b[i], &other[j]; {
		case x.property < y.property:
			i++
		case x.property > y.property:
			j++
		case !meet(&x.Extent, &y.Extent):
			return false
		default:
			i++
			j++
		}
	}
	return true
}

// join returns the smallest box that holds both. It overwrites b.
func (b box) join(other box) box {
	out := b[:0]
	j := 0
	for i := range b {
		for j < len(other) && other[j].property < b[i].property {
			j++
		}
		if j < len(other) && other[j].property == b[i].property {
			out = append(out, side{Extent: join(b[i].Extent, other[j].Extent), property: b[i].property})
		}
	}
	return out
}

// of returns the numbers of a property, or nil if the box leaves it open.
func (b box) of(property int32) *flow.Extent {
	for i := range b {
		if b[i].property == property {
			return &b[i].Extent
		}
	}
	return nil
}

// meet reports whether some number is in both extents. In doubt it returns true.
func meet(a, b *flow.Extent) bool {
	return (a.First.Lo^b.First.Lo)&a.Mask.Lo&b.Mask.Lo == 0 && (a.First.Hi^b.First.Hi)&a.Mask.Hi&b.Mask.Hi == 0 &&
		a.First.Compare(b.Last) <= 0 && b.First.Compare(a.Last) <= 0
}

// join returns the smallest extent that has the numbers of both.
func join(a, b flow.Extent) flow.Extent {
	out := flow.Extent{First: a.First, Last: a.Last, Mask: flow.Number{
		Hi: a.Mask.Hi & b.Mask.Hi &^ (a.First.Hi ^ b.First.Hi),
		Lo: a.Mask.Lo & b.Mask.Lo &^ (a.First.Lo ^ b.First.Lo),
	}}
	if b.First.Compare(out.First) < 0 {
		out.First = b.First
	}
	if b.Last.Compare(out.Last) > 0 {
		out.Last = b.Last
	}
	return out
}

// joinAll is join for several extents.
func joinAll(list []flow.Extent) flow.Extent {
	out := list[0]
	for _, e := range list[1:] {
		out = join(out, e)
	}
	return out
}

// coordinate is an end of the sides of a property: a number by which boxes can be told apart.
type coordinate struct {
	property int32
	last     bool // the last number, otherwise the first one
}

// in returns the coordinate of the numbers that a box has for the property, which may be nil.
func (c coordinate) in(e *flow.Extent) flow.Number {
	switch {
	case e == nil && c.last:
		return flow.Number{Hi: ^uint64(0), Lo: ^uint64(0)}
	case e == nil:
		return flow.Number{}
	case c.last:
		return e.Last
	}
	return e.First
}

// compare compares two coordinates.
func (c coordinate) compare(a, b *flow.Extent) int { return c.in(a).Compare(c.in(b)) }

// highestDifference returns the highest bit in which two numbers differ, or -1 if they are equal.
func highestDifference(a, b flow.Number) int {
	if hi := a.Hi ^ b.Hi; hi != 0 {
		return 64 + bits.Len64(hi) - 1
	}
	return bits.Len64(a.Lo^b.Lo) - 1
}

// bitOf returns a bit of a number.
func bitOf(n flow.Number, bit int) int {
	if bit >= 64 {
		return int(n.Hi >> (bit - 64) & 1)
	}
	return int(n.Lo >> bit & 1)
}

// mostChoices limits the boxes of a flow with several sets, which multiply. A single set has a box for each value.
const mostChoices = 256

// item is a value of an index, and what its flow asks of packets.
type item[T comparable] struct {
	value   T
	box     box             // holds the packets of the flow
	sets    [][]flow.Extent // of sides whose numbers are in several places
	choices int             // combinations of the values of sets
	seen    uint64          // the last search that came here
}

func newItem[T comparable](v T, f *flow.Flow) *item[T] {
	bounds := f.Bounds()
	it := &item[T]{value: v, box: make(box, len(bounds)), choices: 1}
	var sets []int // sides
	for i, b := range bounds {
		it.box[i] = side{Extent: joinAll(b.Extents), property: int32(b.Property)}
		if len(b.Extents) > 1 {
			sets = append(sets, i)
		}
	}

	// The sets whose values tell most come first, because there may be too many combinations to have all.
	slices.SortStableFunc(sets, func(i, j int) int {
		return cmp.Compare(emptiness(it.box[j].Extent, bounds[j].Extents), emptiness(it.box[i].Extent, bounds[i].Extents))
	})
	for _, i := range sets {
		values := bounds[i].Extents
		if n := it.choices * len(values); it.choices == 1 || n <= mostChoices {
			it.choices = n
			it.sets = append(it.sets, values)
			it.box[i].set = int32(len(it.sets))
		}
	}
	return it
}

// emptiness returns how many times more numbers an extent has than the values in it.
func emptiness(e flow.Extent, values []flow.Extent) float64 {
	n := 0.0
	for _, v := range values {
		n += size(v)
	}
	return size(e) / n
}

func size(e flow.Extent) float64 {
	return (float64(e.Last.Hi)-float64(e.First.Hi))*(1<<64) + float64(e.Last.Lo) - float64(e.First.Lo) + 1
}

// entry is an item with one value of each of its sets.
type entry[T comparable] struct {
	*item[T]
	choice int // below choices
}

// numbers returns the numbers for a side of the box of the item.
func (e entry[T]) numbers(s *side) *flow.Extent {
	if s.set == 0 {
		return &s.Extent
	}
	rest := e.choice
	for _, values := range e.sets[:s.set-1] {
		rest /= len(values)
	}
	values := e.sets[s.set-1]
	return &values[rest%len(values)]
}

// of returns the numbers of a property, or nil if the entry leaves it open.
func (e entry[T]) of(property int32) *flow.Extent {
	for i := range e.box {
		if s := &e.box[i]; s.property == property {
			return e.numbers(s)
		}
	}
	return nil
}

// appendBox appends the box of the entry to an empty buf.
func (e entry[T]) appendBox(buf box) box {
	for i := range e.box {
		s := &e.box[i]
		buf = append(buf, side{Extent: *e.numbers(s), property: s.property})
	}
	return buf
}

// meets reports whether some packet may be in the box of the entry and in b.
func (e entry[T]) meets(b box) bool {
	for i, j := 0, 0; i < len(e.box) && j < len(b); {
		switch x, y := &e.box[i], &b[j]; {
		case x.property < y.property:
			i++
		case x.property > y.property:
			j++
		case !meet(e.numbers(x), &y.Extent):
			return false
		default:
			i++
			j++
		}
	}
	return true
}
