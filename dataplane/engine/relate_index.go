package engine

import (
	"slices"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// few is how many flows are looked at one by one rather than divided further.
const few = 32

// index finds, among many values of T, those whose flows overlap a given flow. flowOf returns the flow of a
// value.
type index[T comparable] struct {
	flowOf func(T) *flow.Flow
	root   division[T]
}

// division is a set of values. Up to few values are a list; more are divided by the key of the depth.
type division[T comparable] struct {
	n       int
	here    []T // not divided
	divided bool
	open    *division[T] // of those that leave the key open
	by      map[string]*division[T]
}

func (x *index[T]) add(v T)    { x.insert(&x.root, 0, v) }
func (x *index[T]) remove(v T) { x.take(&x.root, 0, v) }
func (x *index[T]) size() int  { return x.root.n }

// meeting calls look with each flow of the index that overlaps f, in no order.
func (x *index[T]) meeting(f *flow.Flow, look func(T)) {
	x.visit(&x.root, 0, f, func(v T) {
		if overlap(f, x.flowOf(v)) {
			look(v)
		}
	})
}

// all calls look with each flow of the index, in no order.
func (x *index[T]) all(look func(T)) { x.root.each(look) }

func (x *index[T]) insert(d *division[T], depth int, v T) {
	d.n++
	if d.divided {
		x.insert(x.part(d, depth, v), depth+1, v)
		return
	}
	d.here = append(d.here, v)
	if len(d.here) <= few || depth == len(keys) {
		return
	}
	here := d.here
	d.here, d.divided, d.by = nil, true, make(map[string]*division[T])
	for _, o := range here {
		x.insert(x.part(d, depth, o), depth+1, o)
	}
}

// part is where v belongs in a division that is divided.
func (x *index[T]) part(d *division[T], depth int, v T) *division[T] {
	k := keys[depth](x.flowOf(v))
	if k == "" {
		if d.open == nil {
			d.open = new(division[T])
		}
		return d.open
	}
	if d.by[k] == nil {
		d.by[k] = new(division[T])
	}
	return d.by[k]
}

// take removes v from d, if v is there, and then removes the divisions that are empty.
func (x *index[T]) take(d *division[T], depth int, v T) (found bool) {
	if !d.divided {
		i := slices.Index(d.here, v)
		if i < 0 {
			return false
		}
		d.here = slices.Delete(d.here, i, i+1)
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
		*d = division[T]{}
	case p.n > 0:
	case k == "":
		d.open = nil
	default:
		delete(d.by, k)
	}
	return true
}

// visit calls look with the flows that no key tells apart from f.
func (x *index[T]) visit(d *division[T], depth int, f *flow.Flow, look func(T)) {
	for _, v := range d.here {
		look(v)
	}
	if !d.divided {
		return
	}
	if d.open != nil {
		x.visit(d.open, depth+1, f, look)
	}
	if k := keys[depth](f); k != "" {
		if p := d.by[k]; p != nil {
			x.visit(p, depth+1, f, look)
		}
		return
	}
	for _, p := range d.by {
		x.visit(p, depth+1, f, look)
	}
}

func (d *division[T]) each(look func(T)) {
	for _, v := range d.here {
		look(v)
	}
	if d.open != nil {
		d.open.each(look)
	}
	for _, p := range d.by {
		p.each(look)
	}
}
