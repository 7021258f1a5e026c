package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/flowtally/flowtally/dataplane/engine/poll"
)

// arranger moves flows between hardware and XDP, in an order that keeps the invariants of placement at every moment
// (docs/architecture.md). Callers hold Engine.ctl.
type arranger struct {
	mover     *mover
	poller    *poll.Poller
	flows     map[string]*flowState // Engine.flows
	out       map[*flowState]error  // a change keeps these flows out of hardware until it ends; the value says why
	unsettled bool                  // the last arrange left some flow in the wrong place
	waiting   bool                  // some flow has lost its device and has no other place yet, so the watcher tries again
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

// arrange decides between hardware and XDP for some flows, and moves them there: the fresh ones, whose shadows exist by
// now, the seeds, and every flow that depends on one of these. If seeds is nil, if hardware has lost flows, or if the last
// arrange did not finish, it decides for all flows.
//
// The order matters. First flows leave hardware, from the lowest precedence up. Next we publish the fresh flows that
// displaced them. Last, flows enter hardware, from the highest precedence down. So hardware never counts a flow without
// counting all flows that win over it.
//
// An error concerns the fresh flows alone. All others are counted as well as they can be.
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
	left := 0 // the number of flows that have left hardware, and so made room there
	for {
		// Once the caller has gone, the device is not offered the rest. The device did not refuse those, so no other
		// flow must make room for them.
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
		if every && r.mover.returnInterfaces(ctx, all) > 0 {
			continue // now hardware may also count flows that lose against these
		}
		if every || len(again) == 0 {
			return nil
		}
		left = 0
		seeds = append(seeds, again...)
	}
}

// makeWay takes flows out of hardware before XDP gets the rules of fresh flows that win over them. In the other order both
// would count the packets of the fresh flows for a moment. It returns more seeds for arrange. Where making way is
// impossible it does nothing, and arrange reports why.
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

// allInPlace reports whether every flow is where the assignment wants it, and no flow waits for its device.
func allInPlace(all []*flowState, inHardware assignment) bool {
	return !slices.ContainsFunc(all, func(c *flowState) bool { return c.gone != nil || inHardware.has(c) != c.offloaded })
}

// roomFor returns up to n flows to offer to the device again. It refused them earlier, and n flows have left it since.
func (r *arranger) roomFor(n int) []*flowState {
	return r.mover.stack.denied.take(n, func(c *flowState) bool { return r.flows[c.Name] == c && !c.offloaded })
}
