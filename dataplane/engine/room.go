package engine

import (
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/catalogue"
)

// room computes which flows fit in the tables of XDP and in the mirror. take counts off the room of one flow.
type room struct {
	p       *placement
	tables  map[backend.Backend]backend.Room
	entries *catalogue.Room
}

func newRoom(e *Engine) *room {
	return &room{p: e.placement, tables: make(map[backend.Backend]backend.Room), entries: e.catalogue.Room()}
}

// renew computes the room again, after flows have come or gone.
func (r *room) renew() {
	clear(r.tables)
	r.entries.Renew()
}

// of returns the room of the tables of a backend. nil: the backend cannot tell, so callers have to try.
func (r *room) of(b backend.Backend) backend.Room {
	if t, known := r.tables[b]; known {
		return t
	}
	roomy, is := b.(backend.Roomy)
	if !is {
		return nil
	}
	r.tables[b] = roomy.Room()
	return r.tables[b]
}

// take counts off the room of a flow, or returns why there is none. It changes nothing outside r. A flow that hardware may count
// needs no room for a shadow.
func (r *room) take(c *flowState) error {
	var tables backend.Room
	of, stack := r.p.choices.of(c.Flow), r.p.mover.stack
	switch {
	case c.offload != nil && stack.software != nil:
		tables = r.of(stack.software)
	case c.offload == nil && len(of.open) == 0:
		return r.p.unplaced([]*flowState{c}, of, nil)
	case c.offload == nil && len(of.open) == 1: // with several backends, another one may take the flow
		tables = r.of(of.open[0])
	}

	var cookie uint64
	if tables != nil {
		var err error
		cookie, err = tables.Fits(c.Placed)
		switch {
		case err == nil:
		case c.offload == nil:
			return r.p.unplaced([]*flowState{c}, of, []error{err})
		default:
			if err := stack.goWithoutShadow(c, err); err != nil {
				return err
			}
			tables = nil
		}
	}

	if err := r.entries.Take(entryOf(c.Flow), cookiesOf(cookie)...); err != nil {
		return fmt.Errorf("flow %q: %w", c.Name, err)
	}
	if tables != nil {
		tables.Take(c.Placed)
	}
	return nil
}

// refuseBeyond refuses the added flows for which there is no room beside the flows configured before them.
func (ch *change) refuseBeyond(r *room) {
	e := ch.e
	ch.added = slices.DeleteFunc(ch.added, func(c *flowState) bool {
		e.ctl.Pause()
		err := r.take(c)
		if err != nil {
			e.refused.add(c, err)
		}
		return err != nil
	})
}
