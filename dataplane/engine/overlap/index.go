package overlap

import "github.com/flowtally/flowtally/dataplane/flow"

// Index finds the values whose flows overlap a given flow. Comparing each pair of 16,384 flows, 134 million, would take longer
// than a call may.
//
// It is a tree of the boxes that hold the packets of flows ([flow.Flow.Bounds]). A flow with sets has a box for each choice
// among their values. Each node knows a box that holds all those below it, so a search passes by the nodes, and then the
// boxes, that do not meet its own. [flow.Overlap] has the last word.
//
// An Index is not safe for concurrent use.
type Index[T comparable] struct {
	flowOf func(T) *flow.Flow
	root   *node[T]
	n      int
	search uint64 // the number of the last search
	buf    box    // the box to search for, or to add or remove

	compared int // pairs of boxes that all searches have compared; tests bound it
}

// NewIndex returns an empty index. flowOf returns the flow of a value, which must not change while the value is in the index.
func NewIndex[T comparable](flowOf func(T) *flow.Flow) *Index[T] { return &Index[T]{flowOf: flowOf} }

// Add adds v, which must not be in the index already.
func (x *Index[T]) Add(v T) {
	it := newItem(v, x.flowOf(v))
	for choice := range it.choices {
		e := entry[T]{it, choice}
		x.buf = e.appendBox(x.buf[:0])
		x.root = x.root.insert(x.buf, e)
	}
	x.n++
}

// Remove removes v if it is in the index.
func (x *Index[T]) Remove(v T) {
	it := newItem(v, x.flowOf(v))
	removed := false
	for choice := range it.choices {
		e := entry[T]{it, choice}
		x.buf = e.appendBox(x.buf[:0])
		x.root, removed = x.root.remove(x.buf, e)
		if !removed {
			return
		}
	}
	x.n--
}

// Len returns the number of values.
func (x *Index[T]) Len() int { return x.n }

// Overlapping calls visit for each value whose flow overlaps f, in random order. visit must not use the index.
func (x *Index[T]) Overlapping(f *flow.Flow, visit func(T)) {
	x.candidates(f, func(v T) {
		if flow.Overlap(f, x.flowOf(v)) {
			visit(v)
		}
	})
}

// All calls visit for each value, in random order. visit must not use the index.
func (x *Index[T]) All(visit func(T)) {
	x.search++
	x.root.each(func(e entry[T]) {
		if e.seen != x.search {
			e.seen = x.search
			visit(e.value)
		}
	})
}

// candidates calls visit once for each value with a box that meets one of f.
func (x *Index[T]) candidates(f *flow.Flow, visit func(T)) {
	if x.root == nil {
		return
	}
	x.search++
	var none T
	it := newItem(none, f)
	for choice := range it.choices {
		x.buf = entry[T]{it, choice}.appendBox(x.buf[:0])
		x.descend(x.root, x.buf, visit)
	}
}

// descend calls visit for each value below n that this search has not visited yet, and of which a box meets b.
func (x *Index[T]) descend(n *node[T], b box, visit func(T)) {
	x.compared++
	if !n.box.meets(b) {
		return
	}
	if n.divided() {
		x.descend(n.halves[0], b, visit)
		x.descend(n.halves[1], b, visit)
		return
	}
	for _, e := range n.list {
		if e.seen == x.search {
			continue
		}
		x.compared++
		if e.meets(b) {
			e.seen = x.search
			visit(e.value)
		}
	}
}
