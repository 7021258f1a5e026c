package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// mostUndoneCompared bounds the pairs of flows that declare compares, which takes about 100 ms. The flows beyond it get a
// discontinuity without a comparison.
const mostUndoneCompared = 4_000_000

// undone is what a change has had in force in software when it is undone. Packets that passed meanwhile were counted by
// flows that are gone.
type undone struct {
	flows   []backend.Placed    // that counted before alone, or meanwhile alone
	altered map[*flowState]bool // that had other packets than before and after
}

// inForce returns what the change has in force. refused says that the last step of the change was refused after packets had
// been counted by its flows.
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
		// Until the backend has taken the new rules, those from before count too. Once all is done, undo declares the loss.
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

// noteOthers notes the changed flows that have lost packets to flows that came, or have got packets of flows that went.
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

// notePassed notes the flows that have changed places with each other, if they match the same packets: one has counted packets
// of the other.
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

// inSoftware reports whether software has rules of a flow that is being added.
func (c *flowState) inSoftware() bool {
	if c.offload != nil {
		return c.hasShadow
	}
	_, is := c.backend.(backend.SoftwareBackend)
	return is
}

// declare declares a loss of each flow whose packets a flow of the undone change may have counted. The total of a flow that
// hardware counts has them, but does not follow from its shadow any more.
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
