package engine

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// shown is what readers see of a flow. Once readers have it, nobody may write to it: flowState.edit replaces it by a copy.
type shown struct {
	backend.Placed
	handle   shm.Handle
	source   dataplane.Source
	rejected []dataplane.Rejection // shared by flows: replaced, never written to
}

// inForce is the set of flows and interfaces after the last change, and the only one that readers see. A change locks mu for its
// commit alone, never during a call into the kernel or to a device. So readers do not wait for a change.
type inForce struct {
	mu         sync.Mutex
	flows      map[string]*shown   // by name
	refused    map[string]*refusal // by name
	interfaces []dataplane.Interface
}

// pending is what was changed under Engine.ctl since the last commit.
type pending struct {
	names  []string          // of added, changed and removed flows, some of them twice
	events []dataplane.Event // sent only after the commit, so that a receiver finds the flow as the event says
}

func (p *pending) send(ev dataplane.Event) {
	ev.Time = time.Now()
	p.events = append(p.events, ev)
}

// commit shows readers what was changed under ctl. Each ctl.Unlock calls it. Its cost grows with the number of changed flows, not with
// the size of the set.
func (e *Engine) commit() {
	set := &e.inForce
	set.mu.Lock()
	for _, name := range e.pending.names {
		delete(set.flows, name)
		delete(set.refused, name)
		if c := e.flows[name]; c != nil {
			c.held = true
			set.flows[name] = c.shown
		} else if x := e.refused.flows[name]; x != nil {
			set.refused[name] = x
		}
	}
	set.interfaces = e.cfg.Interfaces
	set.mu.Unlock()

	events := e.pending.events
	*e.pending = pending{}
	for _, ev := range events {
		e.events.Publish(ev)
	}
}

// put makes c a flow of the set.
func (e *Engine) put(c *flowState) {
	e.flows[c.Name] = c
	e.pending.names = append(e.pending.names, c.Name)
}

// drop takes the flow of a name out of the set.
func (e *Engine) drop(name string) {
	delete(e.flows, name)
	e.pending.names = append(e.pending.names, name)
}

// edit returns the record of c for writing. Readers see the new values after the commit.
func (c *flowState) edit() *shown {
	if c.held {
		own := *c.shown
		c.shown = &own
		c.held = false
		c.pending.names = append(c.pending.names, c.Name)
	}
	return c.shown
}

// placements lists the flows of these names, or all flows without names, by name.
func (s *inForce) placements(names []string) []dataplane.Placement {
	flows, refused := s.records(names)
	out := make([]dataplane.Placement, 0, len(flows)+len(refused))
	for _, c := range flows {
		out = append(out, c.placement())
	}
	for _, x := range refused {
		out = append(out, x.placement())
	}
	slices.SortFunc(out, func(a, b dataplane.Placement) int { return cmp.Compare(a.Flow.Name, b.Flow.Name) })
	return out
}

// records returns the records of these names, or all records without names.
func (s *inForce) records(names []string) (flows []*shown, refused []*refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(names) == 0 {
		flows = slices.AppendSeq(make([]*shown, 0, len(s.flows)), maps.Values(s.flows))
		return flows, slices.Collect(maps.Values(s.refused))
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		if c := s.flows[name]; c != nil {
			flows = append(flows, c)
		} else if x := s.refused[name]; x != nil {
			refused = append(refused, x)
		}
	}
	return flows, refused
}

// conditions returns the conditions of refused flows; see refusalConditions.
func (s *inForce) conditions() []dataplane.Condition {
	s.mu.Lock()
	refused := slices.Collect(maps.Values(s.refused))
	s.mu.Unlock()
	return refusalConditions(refused)
}

func (s *shown) placement() dataplane.Placement {
	return dataplane.Placement{
		Flow: s.Flow.Clone(), Order: placeOf(s.Placed), Source: s.source, Rejected: s.rejected,
		Counter: s.handle,
	}
}

// placeOf is [dataplane.Placement.Order], which begins at 1.
func placeOf(f backend.Placed) uint32 { return f.Order + 1 }
