package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
)

// stack is an overlay and what lies behind it: the flows that one of the two is to
// count are placed as one set. Without an overlay there is no stack.
type stack struct {
	over  placer
	under carrier // nil: what the overlay cannot count is not counted
	audit bool    // shadows of the overlay's flows are served too

	behind []*counted // with audit: flows whose totals lack what their shadows know, and some that do not any more
}

// layered is what the stack knows of a flow. Its shadow is what lies behind holds of it: rules
// that win its match and a counter (hasUnder). A flow is in one of these states:
//
//	fresh       not published; hasUnder when its shadow is carried
//	overlay     hasOver; backend is the overlay. line and counted.stretch hold if the shadow
//	            is served, or its hook is held for others; else stretch is 0
//	lost        hasOver and gone: the overlay has said so; the next arrange ends it
//	shadow      not hasOver, no gone: backend is what lies behind, line is the base
//	stranded    not hasOver, but gone: nothing is read; the total stays until the device
//	            returns or the shadow can be served
//
// toUnder leads from overlay, lost and stranded to shadow, toOver from shadow and stranded to
// overlay, strand from lost to stranded; enter and serveFresh end fresh.
type layered struct {
	mayOver, mayUnder bool      // as the flow and the configuration say
	over, under       Installed // where hasOver, hasUnder
	hasOver, hasUnder bool
	gone              error                 // the overlay counts it no more, and nothing else does yet
	refusals          []dataplane.Rejection // of backends that are not open

	above   []*counted // flows that win over it on packets that both match
	still   quiet      // see audit
	differs string     // how hardware and the shadow differ
	resets  uint64     // placer.Resets, as far as the total says so
	behind  bool       // the total may lack what passed while it went to the overlay

	// The truth that the shadow knows: the total is line and what the shadow has
	// counted, as long as its stretch of counting is the same and not 0.
	line Pair
}

// byPrecedence orders flows as they win over each other.
func byPrecedence(a, b *counted) int {
	return wins(a.Placed, b.Placed)
}

// assign says which of all, in precedence order, the overlay is to count, and why not
// the others. A flow goes there when it fits and everything that wins over it is there:
// what lies behind cannot take a packet back from the overlay. As whoever is in
// the way stands higher, one pass from the top finds the largest such set.
func (s *stack) assign(all []*counted, refused map[*counted]error) (over map[*counted]bool, why map[*counted]error) {
	over, why = make(map[*counted]bool, len(all)), make(map[*counted]error)
	var above []Placed
	for _, c := range all {
		if !c.mayOver {
			continue
		}
		err := refused[c]
		for _, o := range c.above {
			if err == nil && !over[o] {
				err = fmt.Errorf("flow %q wins over it on packets that match both, and is not counted by %s", o.Name, s.over.Name())
			}
		}
		if err == nil {
			above = above[:0]
			for _, o := range c.above {
				above = append(above, o.Placed)
			}
			err = s.over.Fits(c.Flow, above)
		}
		if err != nil {
			why[c] = err
		} else {
			over[c] = true
		}
	}
	return over, why
}

// possible says why the flows cannot be counted as assigned: one has nowhere to go,
// or one that XDP publishes would take packets that a flow of the overlay counts.
func (s *stack) possible(all []*counted, over map[*counted]bool, why map[*counted]error) error {
	var errs []error
	for _, c := range all {
		switch {
		case over[c]:
		case c.mayUnder && c.hasUnder:
			for _, o := range c.above {
				if over[o] && !o.hasUnder {
					errs = append(errs, fmt.Errorf("flow %q: %s has no room for the shadow of flow %q, which wins over it and is counted by %s: %w",
						c.Name, s.under.Name(), o.Name, s.over.Name(), dataplane.ErrUnplaced))
				}
			}
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

// explain gives flows that are counted by their shadows the overlay's reason of now: they may have
// been placed before there was one, or for another.
func (s *stack) explain(all []*counted, why map[*counted]error) {
	for _, c := range all {
		if !c.published() || c.hasOver || c.gone != nil || why[c] == nil {
			continue
		}
		if now := s.reasons(c, why[c]); !slices.Equal(now, c.rejected) {
			c.rejected = now // a fresh slice: callers have the other
		}
	}
}

// reasons are why the backends that do not count a flow do not.
func (s *stack) reasons(c *counted, notOver error) []dataplane.Rejection {
	out := slices.Clone(c.refusals)
	if notOver != nil {
		out = append(out, dataplane.Rejection{Backend: s.over.Name(), Reason: notOver.Error()})
	}
	return out
}
