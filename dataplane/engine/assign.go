package engine

import (
	"container/heap"
	"errors"
	"fmt"
	"slices"
	"unique"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// stack is an overlay and what lies behind it: the flows that one of the two is to
// count are placed as one set. Without an overlay there is no stack.
type stack struct {
	over  backend.HardwareBackend
	under backend.SoftwareBackend // nil: what the overlay cannot count is not counted
	audit bool                    // shadows of the overlay's flows are served too

	toAlign []*counted // with audit: flows whose totals lack what their shadows know, and some that do not any more

	related *flow.Index[*counted] // the flows of the stack, but for fresh ones before they are related
	denied  denials               // flows that the overlay's device refused, though it can count such
}

// offload is what the stack knows of a flow. Its shadow is what lies behind holds of it: rules
// that win its match and a counter (hasUnder). A flow is in one of these states:
//
//	fresh       not published; hasUnder when its shadow is carried
//	overlay     hasOver; backend is the overlay. line and counted.epoch hold if the shadow
//	            is served, or its hook is held for others; else stretch is 0
//	divided     as overlay, but away on some interfaces, where its shadow counts in the devices' place
//	lost        hasOver and gone: the overlay has said so; the next arrange ends it
//	shadow      not hasOver, no gone: backend is what lies behind, line is the base
//	stranded    not hasOver, but gone: nothing is read; the total stays until the device
//	            returns or the shadow can be served
//
// toUnder leads from overlay, lost and stranded to shadow, toOver from shadow and stranded to
// overlay, strand from lost to stranded; enter and serveFresh end fresh.
type offload struct {
	mayOver, mayUnder   bool              // as the flow and the configuration say
	over, under         backend.Installed // where hasOver, hasUnder
	offloaded, hasUnder bool
	gone                error                 // the overlay counts it no more, and nothing else does yet
	refusals            []dataplane.Rejection // of backends that are not open

	above    []*counted // flows that win over it on packets that both match; see winners
	below    []*counted // flows that it wins over there, in no order
	unsorted bool       // above is in no order
	isDenied bool       // it is in stack.denied

	lastIdle   idleSample // see audit
	differs    string     // how hardware and the shadow differ
	resets     uint64     // HardwareBackend.Resets, as far as the total says so
	needsAlign bool       // the total may lack what passed while it went to the overlay
	away       []away     // where hasOver: interfaces whose devices are lost

	// The truth that the shadow knows: the total is line and what the shadow has
	// counted, as long as its stretch of counting is the same and not 0.
	shadowBase backend.Pair
}

// byPrecedence orders flows as they win over each other.
func byPrecedence(a, b *counted) int {
	return backend.ByPrecedence(a.Placed, b.Placed)
}

// assignment says of flows whether the overlay is to count them. Those that it does not name stay where they are.
type assignment map[*counted]bool

func (a assignment) has(c *counted) bool {
	if over, named := a[c]; named {
		return over
	}
	return c.offloaded
}

// assign says which of all, in precedence order, the overlay is to count, and why not
// the others. The overlay counts a flow if the flow fits and if the overlay counts all flows that win over it:
// the backend behind the overlay cannot take a packet back from the overlay. A flow depends
// only on flows that win over it, so one pass from the top finds the largest such set.
func (s *stack) assign(all []*counted, refused map[*counted]error) (over assignment, why map[*counted]error) {
	over, why = make(assignment, len(all)), make(map[*counted]error)
	for _, c := range all {
		s.judge(c, over, why, refused)
	}
	return over, why
}

// reassign is assign of seeds, and of the flows for which the answer follows from theirs: those below a flow
// that comes into the overlay, or leaves it. The others are where they are to be.
// all lists the flows that were looked at, in precedence order.
func (s *stack) reassign(seeds []*counted, refused map[*counted]error) (all []*counted, over assignment, why map[*counted]error) {
	over, why = make(assignment, len(seeds)), make(map[*counted]error)
	queue := &byPlace{}
	known := make(map[*counted]bool, len(seeds))
	ask := func(list []*counted) {
		for _, c := range list {
			if !known[c] {
				known[c] = true
				heap.Push(queue, c)
			}
		}
	}
	ask(seeds)
	for queue.Len() > 0 {
		c := heap.Pop(queue).(*counted)
		all = append(all, c)
		s.judge(c, over, why, refused)
		if over[c] != c.offloaded {
			ask(c.below) // each behind c, so none was looked at before
		}
	}
	return all, over, why
}

// judge decides on one flow. The flows that win over it must have been decided before.
func (s *stack) judge(c *counted, over assignment, why, refused map[*counted]error) {
	over[c] = false
	if !c.mayOver {
		return
	}
	err := refused[c]
	above := c.winners()
	if i := slices.IndexFunc(above, func(o *counted) bool { return o.takesFrom(c, over.has(o)) }); err == nil && i >= 0 {
		err = fmt.Errorf("flow %q wins over it on packets that match both, and is not counted by %s", above[i].Name, s.over.Name())
	}
	if err == nil {
		var without []string // interfaces whose devices are lost
		if c.offloaded {
			without = c.awayFrom()
		}
		err = s.over.Fits(c.Flow, placedOf(above), without)
	}
	if err != nil {
		why[c] = err
		return
	}
	over[c] = true
}

// possible says why the flows cannot be counted as assigned: one has nowhere to go,
// or one that XDP publishes would take packets that a flow of the overlay counts.
func (s *stack) possible(all []*counted, over assignment, why map[*counted]error) error {
	var errs []error
	for _, c := range all {
		switch {
		case over.has(c):
			if c.hasUnder {
				continue
			}
			for _, o := range c.below {
				if _, named := over[o]; !named {
					errs = append(errs, s.unshaded(o, over))
				}
			}
		case c.mayUnder && c.hasUnder:
			errs = append(errs, s.unshaded(c, over))
		case c.gone == nil: // one that is waits for its device
			err := fmt.Errorf("flow %q: %w", c.Name, dataplane.ErrUnplaced)
			for _, r := range s.reasons(c, why[c]) {
				err = fmt.Errorf("%w: %s: %s", err, r.Backend, r.Reason)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// unshaded says which flows that win over c are counted by the overlay and have no shadow, if XDP counts c.
func (s *stack) unshaded(c *counted, over assignment) error {
	if over.has(c) || !c.mayUnder || !c.hasUnder {
		return nil
	}
	var errs []error
	for _, o := range c.winners() {
		if over.has(o) && !o.hasUnder {
			errs = append(errs, fmt.Errorf("flow %q: %s has no room for the shadow of flow %q, which wins over it and is counted by %s: %w",
				c.Name, s.under.Name(), o.Name, s.over.Name(), dataplane.ErrUnplaced))
		}
	}
	return errors.Join(errs...)
}

// explain gives flows that are counted by their shadows the overlay's reason of now: they may have
// been placed before there was one, or for another.
func (s *stack) explain(all []*counted, why map[*counted]error) {
	for _, c := range all {
		if !c.published() || c.offloaded || c.gone != nil || why[c] == nil {
			continue
		}
		if now := s.reasons(c, why[c]); !slices.Equal(now, c.rejected) {
			c.rejected = now // a fresh slice: callers have the other
		}
	}
}

// reasons are why the backends that do not count a flow do not.
func (s *stack) reasons(c *counted, notOver error) []dataplane.Rejection {
	if notOver == nil {
		return c.refusals
	}
	// Thousands of flows have one reason: they share its text.
	reason := unique.Make(notOver.Error()).Value()
	return append(slices.Clone(c.refusals), dataplane.Rejection{Backend: s.over.Name(), Reason: reason})
}
