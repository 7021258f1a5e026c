package overlap

import (
	"slices"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// maxUndivided is the largest number of values in a node without children.
const maxUndivided = 32

// Index finds the values whose flows overlap a given flow. It is a tree that divides values by addresses, ports and
// interface, so that few must be compared. Comparing each pair of 16,384 flows, 134 million, would take longer than a
// call may. An Index is not safe for concurrent use.
type Index[T comparable] struct {
	flowOf func(T) *flow.Flow
	root   node[T]
}

// NewIndex returns an empty index. flowOf returns the flow of a value, which must not change while the value is in the index.
func NewIndex[T comparable](flowOf func(T) *flow.Flow) *Index[T] { return &Index[T]{flowOf: flowOf} }

// node is a set of values. It starts as a list. Beyond maxUndivided values, it is divided by the key for its depth.
type node[T comparable] struct {
	n       int // number of values
	list    []T // if not divided
	divided bool
	open    *node[T]            // values whose flows leave the key open
	by      map[string]*node[T] // other values, by key
}

// Add adds v, which must not be in the index already.
func (x *Index[T]) Add(v T) { x.insert(&x.root, 0, v) }

// Remove removes v if it is in the index.
func (x *Index[T]) Remove(v T) { x.take(&x.root, 0, v) }

// Len returns the number of values.
func (x *Index[T]) Len() int { return x.root.n }

// Overlapping calls visit for each value whose flow overlaps f, in random order.
func (x *Index[T]) Overlapping(f *flow.Flow, visit func(T)) {
	x.candidates(&x.root, 0, f, func(v T) {
		if flow.Overlap(f, x.flowOf(v)) {
			visit(v)
		}
	})
}

// All calls visit for each value, in random order.
func (x *Index[T]) All(visit func(T)) { x.root.each(visit) }

func (x *Index[T]) insert(d *node[T], depth int, v T) {
	d.n++
	if d.divided {
		x.insert(x.child(d, depth, v), depth+1, v)
		return
	}
	d.list = append(d.list, v)
	if len(d.list) <= maxUndivided || depth == len(keys) {
		return
	}
	list := d.list
	d.list, d.divided, d.by = nil, true, make(map[string]*node[T])
	for _, o := range list {
		x.insert(x.child(d, depth, o), depth+1, o)
	}
}

// child returns the child of a divided node for v. It creates the child if necessary.
func (x *Index[T]) child(d *node[T], depth int, v T) *node[T] {
	k := keys[depth](x.flowOf(v))
	if k == "" {
		if d.open == nil {
			d.open = new(node[T])
		}
		return d.open
	}
	if d.by[k] == nil {
		d.by[k] = new(node[T])
	}
	return d.by[k]
}

// take removes v from d, together with nodes that become empty. found says whether d had v.
func (x *Index[T]) take(d *node[T], depth int, v T) (found bool) {
	if !d.divided {
		i := slices.Index(d.list, v)
		if i < 0 {
			return false
		}
		d.list = slices.Delete(d.list, i, i+1)
		d.n--
		return true
	}
	k := keys[depth](x.flowOf(v))
	p := d.by[k]
	if k == "" {
		p = d.open
	}
	if p == nil || !x.take(p, depth+1, v) {
		return false
	}
	d.n--
	switch {
	case d.n == 0:
		*d = node[T]{}
	case p.n > 0:
	case k == "":
		d.open = nil
	default:
		delete(d.by, k)
	}
	return true
}

// candidates calls visit for the values of d that may overlap f, because no key differs.
func (x *Index[T]) candidates(d *node[T], depth int, f *flow.Flow, visit func(T)) {
	for _, v := range d.list {
		visit(v)
	}
	if !d.divided {
		return
	}
	if d.open != nil {
		x.candidates(d.open, depth+1, f, visit)
	}
	if k := keys[depth](f); k != "" {
		if p := d.by[k]; p != nil {
			x.candidates(p, depth+1, f, visit)
		}
		return
	}
	for _, p := range d.by {
		x.candidates(p, depth+1, f, visit)
	}
}

func (d *node[T]) each(visit func(T)) {
	for _, v := range d.list {
		visit(v)
	}
	if d.open != nil {
		d.open.each(visit)
	}
	for _, p := range d.by {
		p.each(visit)
	}
}
