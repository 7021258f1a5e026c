package engine

import (
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
)

// absentDevice returns why an open backend has nothing to count with yet, or nil.
func absentDevice(b backend.Backend) error {
	if h, is := b.(backend.HardwareBackend); is {
		return h.Absent()
	}
	return nil
}

// enableOffload makes the stack when the first device appears after the start. All flows that XDP counts join it, in the state shadow:
// XDP has counted them from the beginning. The next arrange moves them to hardware. As long as there is no device, enableOffload keeps
// up to date why hardware does not count them.
func (p *placement) enableOffload() {
	for _, b := range p.choices.all {
		was, why := p.choices.absent[b.Name()], absentDevice(b)
		switch {
		case was == nil || why != nil && why.Error() == was.Error():
			continue
		case why != nil:
			p.choices.absent[b.Name()] = why
			clear(p.choices.byName)
			p.updateRejections(b.Name())
			continue
		}
		delete(p.choices.absent, b.Name())
		clear(p.choices.byName)
		if p.mover.stack = newStack(p.choices.all, p.choices.absent, p.audit); p.mover.stack == nil || p.mover.stack.software == nil {
			return
		}
		var fresh []*flowState
		for _, c := range p.flows {
			if c.backend == backend.Backend(p.mover.stack.software) {
				p.joinStack(c)
				fresh = append(fresh, c)
			}
		}
		p.mover.stack.relate(fresh)
	}
}

// joinStack adds a flow that XDP counts to the stack.
func (p *placement) joinStack(c *flowState) {
	again := p.newFlow(c.Placed)
	c.edit().rejected = again.rejected
	c.offload = again.offload
	c.shadow = backend.Installed{ID: c.id, Cookie: c.slot, Source: c.source, Basis: c.basis}
	c.hasShadow = true
	c.follows = true
	c.shadowBase = c.base
}

// updateRejections tells the flows that a backend could count why it has no device.
func (p *placement) updateRejections(name string) {
	for _, c := range p.flows {
		refused := p.choices.of(c.Flow).refused
		at := slices.IndexFunc(refused, func(r dataplane.Rejection) bool { return r.Backend == name })
		if at < 0 {
			continue
		}
		rejected := slices.Clone(c.rejected) // callers have the slice
		for i := range rejected {
			if rejected[i].Backend == name {
				rejected[i] = refused[at]
			}
		}
		c.edit().rejected = rejected
	}
}
