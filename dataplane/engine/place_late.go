package engine

import (
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
)

// absentDevice says why a backend that is open has nothing to count with yet, or nil.
func absentDevice(b backend.Backend) error {
	if h, is := b.(backend.HardwareBackend); is {
		return h.Absent()
	}
	return nil
}

// enableOffload makes the stack once an overlay that came late has something to count with. A flow that
// XDP counts is then one that its shadow counts, and has been all the time, so nothing moves before
// the next arrange says what may. Until there is an overlay the flows are told why. Without one there
// is no stack, and nothing is related to anything. It is called with ctl held.
func (e *Engine) enableOffload() {
	for _, b := range e.backends {
		was, why := e.absent[b.Name()], absentDevice(b)
		switch {
		case was == nil || why != nil && why.Error() == was.Error():
			continue
		case why != nil:
			e.absent[b.Name()] = why
			clear(e.choices)
			e.tellAbsent(b.Name())
			continue
		}
		delete(e.absent, b.Name())
		clear(e.choices)
		if e.stack = newStack(e.backends, e.absent, e.cfg.RDMA.Audit); e.stack == nil || e.stack.under == nil {
			return
		}
		var fresh []*counted
		for _, c := range e.flows {
			if c.backend == backend.Backend(e.stack.under) {
				e.joinStack(c)
				fresh = append(fresh, c)
			}
		}
		e.stack.relate(fresh)
	}
}

// joinStack makes a flow that XDP counts one of the stack, in the state that is called shadow.
func (e *Engine) joinStack(c *counted) {
	again := e.newCounted(c.Placed)
	c.rejected, c.offload = again.rejected, again.offload
	c.under = backend.Installed{ID: c.id, Cookie: c.past.Cookie, Source: c.source, Basis: c.basis}
	c.hasUnder, c.shadowBase = true, c.base
}

// tellAbsent notes at the flows that might go to a backend why it has nothing to count with.
func (e *Engine) tellAbsent(name string) {
	for _, c := range e.flows {
		refused := e.choice(c.Flow).refused
		at := slices.IndexFunc(refused, func(r dataplane.Rejection) bool { return r.Backend == name })
		if at < 0 {
			continue
		}
		c.rejected = slices.Clone(c.rejected) // callers have the slice
		for i := range c.rejected {
			if c.rejected[i].Backend == name {
				c.rejected[i] = refused[at]
			}
		}
	}
}
