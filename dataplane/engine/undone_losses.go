package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// mostUndoneCompared is how many pairs of flows declare compares at most, which takes about 100 ms. If there are more, the rest of
// the flows get a discontinuity without a comparison.
const mostUndoneCompared = 4_000_000

// undone is what a change had in force in XDP until it was undone. Packets that passed meanwhile may have counted for flows that do
// not exist any more.
type undone struct {
	flows   []backend.Placed    // flows that counted only until the change, or only during it
	altered map[*flowState]bool // flows that counted other packets during the change
}

// inForce returns what the change has in force now. refused: its last step was refused only after its flows had counted packets.
func (ch *change) inForce(alter *alterations, refused bool) undone {
	u := undone{flows: slices.Clone(ch.e.refused.tried), altered: make(map[*flowState]bool)}
	for _, c := range ch.added {
		if c.inSoftware() || refused {
			u.flows = append(u.flows, c.Placed)
		}
	}
	if len(alter.ends) == 0 && !refused {
		return u
	}

	for _, x := range alter.list {
		if !x.anew {
			continue
		}
		u.flows = append(u.flows, x.before(), x.to)
		// Until XDP has taken the new rules, the flow counts by the old ones. Once the change is done, undo declares the loss.
		u.altered[x.c] = len(alter.ends) > 0 && !alter.done
	}
	for _, c := range alter.left {
		u.flows = append(u.flows, c.Placed)
		u.altered[c] = true
	}
	alter.notePassed(u.altered)
	alter.noteOthers(u)
	return u
}

// noteOthers notes the altered flows that have lost packets to added flows, or have got packets of removed ones.
func (a *alterations) noteOthers(u undone) {
	compared := 0
	for _, x := range a.list {
		if !x.rules || x.anew || u.altered[x.c] {
			continue
		}
		last := x.before() // the form over which more flows win
		if backend.ByPrecedence(last, x.to) < 0 {
			last = x.to
		}
		compared += len(u.flows)
		u.altered[x.c] = compared > mostUndoneCompared || slices.ContainsFunc(u.flows, func(f backend.Placed) bool {
			return f.Name != x.to.Name && f.Name != x.before().Name && backend.ByPrecedence(f, last) < 0 && flow.Overlap(&f.Flow, &last.Flow)
		})
	}
}

// notePassed notes overlapping flows that have changed places with each other: one of the two has counted packets of the other.
func (a *alterations) notePassed(altered map[*flowState]bool) {
	of := make(map[*flowState]*alteration)
	for _, x := range a.list {
		of[x.c] = x
	}

	compared := 0
	for _, x := range a.list {
		if x.anew || !x.rules {
			continue
		}
		for _, c := range a.e.flows {
			if compared++; compared > mostUndoneCompared {
				for _, all := range a.e.flows {
					altered[all] = true
				}
				return
			}
			before, after := c.Placed, c.Placed
			if y := of[c]; y != nil {
				before, after = y.before(), y.to
			}
			passed := (backend.ByPrecedence(x.before(), before) < 0) != (backend.ByPrecedence(x.to, after) < 0)
			if c != x.c && passed && (flow.Overlap(&x.to.Flow, &before.Flow) || flow.Overlap(&x.to.Flow, &after.Flow)) {
				altered[c] = true
				altered[x.c] = true
			}
		}
	}
}

// inSoftware reports whether XDP has rules of a flow that is being added.
func (c *flowState) inSoftware() bool {
	if c.offload != nil {
		return c.hasShadow
	}
	_, is := c.backend.(backend.SoftwareBackend)
	return is
}

// declare adds a discontinuity to each flow whose packets may have counted for a flow of the undone change. A flow that hardware counts
// has its packets, but its shadow lacks them and stops following.
func (u undone) declare(e *Engine) error {
	if len(u.flows)+len(u.altered) == 0 {
		return nil
	}
	slices.SortFunc(u.flows, backend.ByPrecedence)

	var errs []error
	compared := 0
	for _, name := range slices.Sorted(maps.Keys(e.flows)) {
		c := e.flows[name]
		lost := u.altered[c]
		_, software := c.backend.(backend.SoftwareBackend)
		if (software || c.offload != nil && c.follows) && !lost {
			n, _ := slices.BinarySearchFunc(u.flows, c.Placed, backend.ByPrecedence)
			compared += n
			overlaps := func(f backend.Placed) bool { return f.Name != c.Name && flow.Overlap(&f.Flow, &c.Flow) }
			lost = n > 0 && (compared > mostUndoneCompared || slices.ContainsFunc(u.flows[:n], overlaps))
		}
		if !lost || !c.published() {
			continue
		}
		if !software && !u.altered[c] { // its shadow lacks packets that its device has counted
			errs = append(errs, e.mover.unfollow(c))
			continue
		}
		c.past.Discontinuities++
		e.mover.sendMoved(c, "a change was undone, whose flows counted for a while", true)
		if err := e.catalogue.SetContinuity(c.handle, c.past); err != nil {
			errs = append(errs, fmt.Errorf("flow %q: declaring a loss: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
