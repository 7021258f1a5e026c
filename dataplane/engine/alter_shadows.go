package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/overlap"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// moveToShadows moves the flows whose rules change to their shadows. The flows that lose against them must follow, because hardware
// must not count a flow behind one that XDP counts. All of them stay out of hardware until arrange.
func (a *alterations) moveToShadows(ctx context.Context) error {
	s := a.e.mover.stack
	if s == nil {
		return nil
	}
	refused := make(map[*flowState]error)
	refuse := func(c *flowState) {
		if c.offloaded && refused[c] == nil {
			a.moved = append(a.moved, c)
		}
		refused[c] = errChanging
	}
	for _, x := range a.list {
		if x.c.offload == nil || !x.rules {
			continue
		}
		refuse(x.c)
		s.related.Overlapping(&x.to.Flow, func(o *flowState) {
			if backend.ByPrecedence(x.to, o.Placed) < 0 {
				refuse(o)
			}
		})
	}
	a.keepOut(refused, refuse)
	defer a.keepOutRemoved()
	if len(a.moved) == 0 {
		return nil
	}
	all, inHardware, why := s.reassign(a.moved, refused)
	a.moved = all
	for _, c := range all {
		if !inHardware[c] && c.hasShadow && !c.allowsSoftware {
			c.allowsSoftware = true
			a.lent = append(a.lent, c)
		}
	}
	if err := s.possible(all, inHardware, why); err != nil {
		return err
	}

	// Afterwards XDP must count each flow that leaves hardware. A flow that waits for its device already may go on waiting.
	leave := slices.DeleteFunc(slices.Clone(all), func(c *flowState) bool { return !c.offloaded || c.gone != nil || inHardware[c] })
	a.e.arranger.moveToSoftware(ctx, all, inHardware, why)
	for _, c := range leave {
		if c.offloaded || c.gone != nil {
			return fmt.Errorf("flow %q: %w: it could not be moved to XDP for the time of the change", c.Name, dataplane.ErrUnplaced)
		}
	}
	return nil
}

// keepOut keeps flows out of hardware until arrange: the flows of refused, the added flows that only XDP may count, and the added flows
// that lose against an altered flow or another one kept out. It calls refuse for each flow that loses against such an added flow.
func (a *alterations) keepOut(refused map[*flowState]error, refuse func(*flowState)) {
	out := overlap.NewIndex(func(f *backend.Placed) *flow.Flow { return &f.Flow })
	for _, x := range a.list {
		if x.c.offload != nil && x.rules {
			out.Add(&x.to)
		}
	}
	for c := range refused {
		out.Add(&c.Placed)
	}

	for _, c := range slices.SortedFunc(slices.Values(a.add), byPrecedence) {
		if c.offload == nil {
			continue
		}
		stays := !c.allowsHardware && len(a.list) > 0 // without altered flows, placeOffload makes way for it
		out.Overlapping(&c.Flow, func(f *backend.Placed) { stays = stays || backend.ByPrecedence(*f, c.Placed) < 0 })
		if !stays {
			continue
		}
		refused[c] = errChanging
		out.Add(&c.Placed)
		a.e.mover.stack.related.Overlapping(&c.Flow, func(o *flowState) {
			if refused[o] == nil && backend.ByPrecedence(c.Placed, o.Placed) < 0 {
				refuse(o)
				out.Add(&o.Placed)
			}
		})
		if a.late = append(a.late, c); !c.allowsSoftware {
			c.allowsSoftware = true
			a.lent = append(a.lent, c)
		}
	}
	a.e.arranger.out = refused
}

// keepOutRemoved keeps flows out of hardware that XDP counts and that the change will remove. In hardware they would win over flows
// that are before them by now.
func (a *alterations) keepOutRemoved() {
	for _, c := range a.remove {
		if c.offload != nil && !c.offloaded {
			a.e.arranger.out[c] = errChanging
		}
	}
}

// replace replaces the state of an added flow.
func (a *alterations) replace(old, fresh *flowState) {
	out := a.e.arranger.out
	if out[old] == nil {
		return
	}
	delete(out, old)
	out[fresh] = errChanging
	if i := slices.Index(a.late, old); i >= 0 {
		a.late[i] = fresh
	}
	if i := slices.Index(a.lent, old); i >= 0 {
		a.lent[i] = fresh
		fresh.allowsSoftware = true
	}
}
