package xdp

import (
	"cmp"
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

	found := slices.Concat(p.dropped, p.rules)
	// Flows behind a stray lack its packets, and those behind a missing rule have had its packets.
	strays := append(s.straysOf(found, p.counters), missingOf(found, configured, fates)...)
	moved := movedOf(found, configured, fates)

	compared := 0
	for i, w := range configured {
		for _, r := range w.rules {
			r.Order = fates[i].place
			compared += len(strays) + len(moved)
			wins := func(stray xdp.Rule) bool { return stray.WinsOver(&r) }
			overlaps := func(moved xdp.Rule) bool { return moved.Overlaps(&r) }
			if compared > mostCompared || slices.ContainsFunc(strays, wins) || slices.ContainsFunc(moved, overlaps) {
				gaps[i] = true
				break
			}
		}
	}
	return gaps
}

// straysOf returns those of the found rules that belong to no configured flow: the change was to add or to remove the flow.
func (s *start) straysOf(found []xdp.Rule, counters []xdp.CounterInfo) []xdp.Rule {
	stray := make(map[uint32]bool) // by counter
	for _, c := range counters {
		stray[c.ID] = s.idle[c.ID] && !strings.HasPrefix(c.Owner, apartPrefix)
	}
	return slices.DeleteFunc(slices.Clone(found), func(r xdp.Rule) bool { return !stray[r.Counter] })
}

// missingOf returns the rules of flows that are not among those that were found: the change was to remove or to add them.
func missingOf(found []xdp.Rule, configured []wanted, fates []fate) (missing []xdp.Rule) {
	has := make(map[xdp.Rule]bool, len(found))
	for _, r := range found {
		has[orderless(r)] = true
	}
	for i, w := range configured {
		for _, r := range w.rules {
			r.Counter, r.Order = fates[i].counter, fates[i].place
			if !fates[i].adopts || !has[orderless(r)] {
				missing = append(missing, r)
			}
		}
	}
	return missing
}

// orderless returns a rule as it is compared with the rules of a start, which has orders and actions of its own.
func orderless(r xdp.Rule) xdp.Rule {
	r.Order, r.Drop = 0, false
	return r
}

// movedOf returns those of the found rules that belong to flows, and that the flows are not to have, or in another order.
// Only their order counts, not its numbers: a start may number the rules anew.
func movedOf(found []xdp.Rule, configured []wanted, fates []fate) (moved []xdp.Rule) {
	wantedOrder := make(map[xdp.Rule]uint32) // by orderless rule
	own := make(map[uint32]bool)             // counters of flows
	for i, w := range configured {
		if !fates[i].adopts {
			continue
		}
		own[fates[i].counter] = true
		for _, r := range w.rules {
			r.Counter = fates[i].counter
			wantedOrder[orderless(r)] = fates[i].place
		}
	}

	var kept []xdp.Rule
	for _, r := range found {
		if _, wanted := wantedOrder[orderless(r)]; wanted {
			kept = append(kept, r)
		} else if own[r.Counter] {
			moved = append(moved, r)
		}
	}
	slices.SortFunc(kept, func(a, b xdp.Rule) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(wantedOrder[orderless(a)], wantedOrder[orderless(b)]))
	})

	// Of two rules that have changed places, the one that is to lose is moved: its flow and the other one both overlap it.
	last := xdp.Rule{}
	for _, r := range kept {
		if r.Priority == last.Priority && r.Order < last.Order {
			moved = append(moved, r)
			continue
		}
		last = r
	}
	return moved
}
