package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/flowtally/flowtally/dataplane/engine/poll"
)

// arranger moves the flows of the stack to the backends that are to count them, in an order that keeps the invariants
// of placement. Its methods are called with Engine.ctl held.
type arranger struct {
	mover     *mover
	poller    *poll.Poller
	flows     map[string]*flowState // Engine.flows
	out       map[*flowState]error  // flows that are kept out of hardware while a change is under way, and why
	unsettled bool                  // the last arrange left some flow in the wrong place
	waiting   bool                  // some flow has lost its device and could not be moved: try again
}

// stackFlows returns the flows of the stack in order of precedence.
func (r *arranger) stackFlows() []*flowState {
	if r.mover.stack == nil {
		return nil
	}
	var all []*flowState
	for _, c := range r.flows {
		if c.offload != nil {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, byPrecedence)
	return all
}

// arrange moves flows of the stack to the backends that are to count them: fresh flows, which have shadows by now, seeds,
// and the flows that depend on these. It considers all flows where seeds is nil, where hardware has lost flows, or
// where the last arrange could not finish. Flows leave hardware from the lowest precedence up, then the flows that
// displaced them are published, then flows enter hardware from the highest precedence down. So at every instant
// hardware counts all flows that win over a flow that it counts. An error is about fresh flows; the others are
// where they can be.
func (r *arranger) arrange(ctx context.Context, fresh, seeds []*flowState) (err error) {
	s := r.mover.stack
	if s == nil {
		return nil
	}
	gone := s.hardware.Gone()
	every := seeds == nil || r.unsettled || len(gone) > 0
	var all []*flowState
	if every {
		all = append(r.stackFlows(), fresh...)
		slices.SortFunc(all, byPrecedence)
		s.noteGone(all, gone)
		r.waiting = false
	}
	var inHardware assignment
	defer func() { r.unsettled = err != nil || !allInPlace(all, inHardware) }()
	refused := make(map[*flowState]error, len(r.out))
	maps.Copy(refused, r.out)
	left := 0 // flows that made room
	for {
		// The device has not refused flows that it was not offered because their caller has left: no flow makes
		// room for them.
		if err := ctx.Err(); err != nil && len(fresh) > 0 {
			return fmt.Errorf("flow %q: %w", fresh[0].Name, err)
		}
		var why map[*flowState]error
		if every {
			inHardware, why = s.assign(all, refused)
		} else {
			all, inHardware, why = s.reassign(seeds, refused)
			seeds = all
		}
		if err := s.possible(all, inHardware, why); err != nil && len(fresh) > 0 {
			return err
		}
		displaced := r.moveToSoftware(ctx, all, inHardware, why)
		left += len(displaced)
		if err := r.publishFresh(ctx, fresh, inHardware, why, displaced); err != nil {
			return err
		}
		failed, err := r.moveToHardware(ctx, all, inHardware)
		if err != nil {
			return err
		}
		for c, err := range failed {
			if !errors.Is(err, errBlocked) {
				refused[c] = err
				s.denied.add(c)
			}
		}
		if len(failed) > 0 {
			continue
		}
		s.explain(all, why)
		again := r.roomFor(left)
		if every && r.returnInterfaces(ctx, all) > 0 {
			continue // flows below them may follow
		}
		if every || len(again) == 0 {
			return nil
		}
		left = 0
		seeds = append(seeds, again...)
	}
}

// makeWay moves flows out of hardware that lose against fresh flows which XDP is to count. Hardware must have let them go before
// XDP gets the rules of those: both would count their packets. It returns further seeds of arrange, which says why where that is
// not possible.
func (r *arranger) makeWay(ctx context.Context, fresh []*flowState) (seeds []*flowState) {
	s := r.mover.stack
	comes := make(map[*flowState]bool, len(fresh))
	for _, c := range fresh {
		comes[c] = true
	}
	all, inHardware, why := s.reassign(slices.Concat(fresh, losers(fresh)), r.out)
	there := slices.DeleteFunc(all, func(c *flowState) bool { return comes[c] })
	if s.possible(there, inHardware, why) != nil {
		return nil
	}
	displaced := r.moveToSoftware(ctx, there, inHardware, why)
	return append(there, r.roomFor(len(displaced))...)
}

// allInPlace reports whether every flow is where the assignment puts it, and no flow waits for its device.
func allInPlace(all []*flowState, inHardware assignment) bool {
	return !slices.ContainsFunc(all, func(c *flowState) bool { return c.gone != nil || inHardware.has(c) != c.offloaded })
}

// roomFor returns up to n flows that the device refused before, and that may find room now.
func (r *arranger) roomFor(n int) []*flowState {
	return r.mover.stack.denied.take(n, func(c *flowState) bool { return r.flows[c.Name] == c && !c.offloaded })
}
