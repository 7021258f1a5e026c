package xdp

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/xdp"
)

var _ backend.ChangeNoter = (*Backend)(nil)

// NoteChange implements backend.ChangeNoter.
func (b *Backend) NoteChange(underWay bool) { b.rules.NoteChange(underWay) }

// mostCompared bounds the pairs of rules that a start compares. The flows beyond it get a gap without a comparison.
const mostCompared = 4_000_000

// unfinished returns which flows have a gap because the last process died within a change: their packets may have counted
// for another flow, or the other way round. This start installs the flows from before that change, while programs counted by
// some of the rules from after it.
func (s *start) unfinished(configured []wanted, fates []fate, p pins) []bool {
	gaps := make([]bool, len(configured))
	if !p.changing && len(p.dropped) == 0 {
		return gaps
	}

	won, moved := s.changed(configured, fates, p)
	compared := 0
	for i, w := range configured {
		for _, r := range w.rules {
			r.Order = fates[i].place
			compared += len(won) + len(moved)
			wins := func(won xdp.Rule) bool { return won.WinsOver(&r) }
			overlaps := func(moved xdp.Rule) bool { return moved.Overlaps(&r) }
			if compared > mostCompared || slices.ContainsFunc(won, wins) || slices.ContainsFunc(moved, overlaps) {
				gaps[i] = true
				break
			}
		}
	}
	return gaps
}

// changed returns the rules that the change was to add, to remove or to move. The flows behind a rule that won lack its
// packets, or have had them: no configured flow has the rule, or a flow is to have it and it is gone. A moved rule is one
// that its flow is not to have, or in another order. Only the order counts, not its numbers: a start may number the rules
// anew.
func (s *start) changed(configured []wanted, fates []fate, p pins) (won, moved []xdp.Rule) {
	orderless := func(r xdp.Rule) xdp.Rule {
		r.Order, r.Drop = 0, false
		return r
	}
	missing := make(map[xdp.Rule]xdp.Rule) // rules of counters that flows take over, by orderless rule
	own := make(map[uint32]bool)           // these counters
	for i, w := range configured {
		for _, r := range w.rules {
			r.Counter, r.Order = fates[i].counter, fates[i].place
			if !fates[i].adopts {
				won = append(won, r)
				continue
			}
			missing[orderless(r)], own[r.Counter] = r, true
		}
	}
	stray := make(map[uint32]bool) // by counter
	for _, c := range p.counters {
		stray[c.ID] = s.idle[c.ID] && !strings.HasPrefix(c.Owner, apartPrefix)
	}

	type pair struct {
		found xdp.Rule
		order uint32 // that it is to have
	}
	var kept []pair
	for _, r := range slices.Concat(p.dropped, p.rules) {
		switch to, wanted := missing[orderless(r)]; {
		case wanted:
			kept = append(kept, pair{r, to.Order})
		case own[r.Counter]:
			moved = append(moved, r)
		case stray[r.Counter]:
			won = append(won, r)
		}
	}
	for _, k := range kept {
		delete(missing, orderless(k.found))
	}
	won = slices.AppendSeq(won, maps.Values(missing))

	// Of two rules that have changed places, the one that is to lose is moved: its flow and the other one both overlap it.
	slices.SortFunc(kept, func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.found.Priority, b.found.Priority), cmp.Compare(a.order, b.order))
	})
	last := xdp.Rule{}
	for _, k := range kept {
		if r := k.found; r.Priority == last.Priority && r.Order < last.Order {
			moved = append(moved, r)
		} else {
			last = r
		}
	}
	return won, moved
}
