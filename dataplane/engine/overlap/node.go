package overlap

import (
	"slices"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// maxUndivided is the length of a list beyond which a node is divided if that helps.
const maxUndivided = 32

// node is a list of entries, or divides them between two nodes by one bit of a coordinate. In the bits above, all entries agree,
// as in a Patricia tree: for an entry that does not agree, insert puts a node above. So no path is longer than all coordinates
// have bits, whatever the order in which entries come.
//
// A list is divided once it is long, and only if that spares comparisons. So the entries of a very long list meet one another,
// mostly, and had to be compared anyway.
type node[T comparable] struct {
	box box // holds the boxes of all entries

	list []entry[T]
	most int // length of list beyond which to look for a division

	halves [2]*node[T] // by the bit of the division; nil in a node with a list
	division
}

// division is a way to divide entries.
type division struct {
	by     coordinate
	bit    int
	sample flow.Number // the coordinate of some entry: all agree with it in the bits above
}

func (n *node[T]) divided() bool { return n.halves[0] != nil }

// newNode returns a list of one entry with the box b.
func newNode[T comparable](b box, e entry[T]) *node[T] {
	return &node[T]{box: slices.Clone(b), list: []entry[T]{e}, most: maxUndivided}
}

// put adds an entry with the box b to a list. It returns n, or a new node if n is nil.
func (n *node[T]) put(b box, e entry[T]) *node[T] {
	if n == nil {
		return newNode(b, e)
	}
	n.box = n.box.join(b)
	n.list = append(n.list, e)
	return n
}

// insert adds an entry with the box b. It returns the node to have in the place of n.
func (n *node[T]) insert(b box, e entry[T]) *node[T] {
	if n == nil || !n.divided() {
		n = n.put(b, e)
		n.divide()
		return n
	}

	at := n.by.in(b.of(n.by.property))
	if bit := highestDifference(at, n.sample); bit > n.bit {
		above := &node[T]{box: slices.Clone(n.box).join(b), division: division{n.by, bit, n.sample}}
		above.halves[bitOf(n.sample, bit)] = n
		above.halves[bitOf(at, bit)] = newNode(b, e)
		return above
	}
	n.box = n.box.join(b)
	half := bitOf(at, n.bit)
	n.halves[half] = n.halves[half].insert(b, e)
	return n
}

// remove removes the entry of a value and a choice, which has the box b. It returns the node to have in the place of n, and whether
// it found the entry.
func (n *node[T]) remove(b box, e entry[T]) (rest *node[T], found bool) {
	if n == nil {
		return nil, false
	}
	if !n.divided() {
		i := slices.IndexFunc(n.list, func(o entry[T]) bool { return o.choice == e.choice && o.value == e.value })
		if i < 0 {
			return n, false
		}
		n.list = slices.Delete(n.list, i, i+1)
		if len(n.list) == 0 {
			return nil, true
		}
		n.shrink()
		return n, true
	}

	half := bitOf(n.by.in(b.of(n.by.property)), n.bit)
	n.halves[half], found = n.halves[half].remove(b, e)
	switch {
	case n.halves[half] == nil:
		return n.halves[1-half], true
	case found:
		n.box = append(n.box[:0], n.halves[0].box...).join(n.halves[1].box)
	}
	return n, found
}

// shrink makes the box of a list as small as it can be. That takes time in proportion to the list, so a long list waits until
// most of it is gone.
func (n *node[T]) shrink() {
	if len(n.list) > maxUndivided {
		if len(n.list) > n.most/4 {
			return
		}
		n.most = max(n.most/2, maxUndivided)
	}
	n.box = n.list[0].appendBox(n.box[:0])
	var buf box
	for _, e := range n.list[1:] {
		buf = e.appendBox(buf[:0])
		n.box = n.box.join(buf)
	}
}

// each calls visit for each entry.
func (n *node[T]) each(visit func(entry[T])) {
	switch {
	case n == nil:
	case n.divided():
		n.halves[0].each(visit)
		n.halves[1].each(visit)
	default:
		for _, e := range n.list {
			visit(e)
		}
	}
}

// divide divides a list that is too long, if that helps.
func (n *node[T]) divide() {
	if len(n.list) <= n.most {
		return
	}
	d, ok := bestDivision(n.list)
	if !ok {
		n.most = 2 * len(n.list) // looking takes time in proportion to the list
		return
	}

	list := n.list
	n.list = nil
	n.division = d
	var buf box
	for _, e := range list {
		buf = e.appendBox(buf[:0])
		half := bitOf(n.by.in(buf.of(n.by.property)), n.bit)
		n.halves[half] = n.halves[half].put(buf, e)
	}
	n.halves[0].divide()
	n.halves[1].divide()
}

// mostSampled limits the entries by which a coordinate is judged.
const mostSampled = 64

// bestDivision returns a division by the highest bit of the coordinate that tells most entries apart. ok is false if no coordinate
// spares an eighth of the comparisons.
//
// It judges a coordinate as if all of its bits divided the list, one below the other. The highest bit by itself spares little
// where a few values are far from all others, and yet has to be the first.
func bestDivision[T comparable](list []entry[T]) (best division, ok bool) {
	step := (len(list) + mostSampled - 1) / mostSampled
	sampled := (len(list) + step - 1) / step
	least := sampled * sampled * 7 / 8

	numbers := make([]*flow.Extent, len(list))
	for _, property := range propertiesOf(list) {
		for i, e := range list {
			numbers[i] = e.of(property)
		}
		for _, last := range []bool{false, true} {
			by := coordinate{property, last}
			low, high := by.in(slices.MinFunc(numbers, by.compare)), by.in(slices.MaxFunc(numbers, by.compare))
			bit := highestDifference(low, high)
			if bit < 0 {
				continue
			}
			sample := make([]*flow.Extent, 0, sampled)
			for i := 0; i < len(numbers); i += step {
				sample = append(sample, numbers[i])
			}
			sorted := slices.SortedFunc(slices.Values(sample), by.compare)
			if n := by.comparisons(sorted, sample); n < least {
				least = n
				best = division{by, bit, low}
				ok = true
			}
		}
	}
	return best, ok
}

// propertiesOf returns the properties of all entries of a list.
func propertiesOf[T comparable](list []entry[T]) []int32 {
	var all []int32
	for _, e := range list {
		for i := range e.box {
			all = append(all, e.box[i].property)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// comparisons returns how many numbers of a list searches are compared with, once all bits of the coordinate divide the list. The
// list must be in ascending order of the coordinate. comparisons changes the order of searches.
func (c coordinate) comparisons(list, searches []*flow.Extent) int {
	open := slices.Contains(list, nil)
	var hull flow.Extent
	if !open {
		hull = *list[0]
		for _, e := range list[1:] {
			hull = join(hull, *e)
		}
	}
	n := 0
	for i, s := range searches {
		if open || s == nil || meet(s, &hull) {
			searches[i], searches[n] = searches[n], s
			n++
		}
	}
	searches = searches[:n]

	bit := highestDifference(c.in(list[0]), c.in(list[len(list)-1]))
	if bit < 0 || n == 0 {
		return len(list) * n
	}
	at := slices.IndexFunc(list, func(e *flow.Extent) bool { return bitOf(c.in(e), bit) == 1 })
	return c.comparisons(list[:at], searches) + c.comparisons(list[at:], searches)
}
