package overlap

import (
	"slices"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// maxUndivided is the largest number of values that one node of an Index lists without dividing them.
const maxUndivided = 32

// Index finds, among many values, those whose flows overlap a given flow. It divides the values by addresses,
// ports and interface, so that it compares few of them: comparing every two of 16384 flows (134 million pairs)
// takes longer than a control call may. An Index has no lock of its own.
type Index[T comparable] struct {
	flowOf func(T) *flow.Flow
	root   node[T]
}

// NewIndex returns an empty index. flowOf returns the flow of a value; the flow does not change while the value
// is in the index.
func NewIndex[T comparable](flowOf func(T) *flow.Flow) *Index[T] { return &Index[T]{flowOf: flowOf} }

// node is a set of values. Up to maxUndivided values are a list; more are divided by the key of the depth.
type node[T comparable] struct {
	n       int
	list    []T // where not divided
	divided bool
	open    *node[T] // values whose flows leave the key open
	by      map[string]*node[T]
}

// Add adds v, which is not in the index.
func (x *Index[T]) Add(v T) { x.insert(&x.root, 0, v) }

// Remove removes v. A value that is not in the index is ignored.
func (x *Index[T]) Remove(v T) { x.take(&x.root, 0, v) }

// Len returns the number of values.
func (x *Index[T]) Len() int { return x.root.n }

// Overlapping calls visit with each value whose flow overlaps f, in no order.
func (x *Index[T]) Overlapping(f *flow.Flow, visit func(T)) {
	x.candidates(&x.root, 0, f, func(v T) {
		if flow.Overlap(f, x.flowOf(v)) {
			visit(v)
		}
	})
}

// All calls visit with each value, in no order.
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

// child returns the child of a divided node that v belongs in, and makes it if necessary.
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

// take removes v from d and reports whether it was there. Nodes that become empty are removed too.
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

// candidates calls visit with the values of d that no key tells apart from f.
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
