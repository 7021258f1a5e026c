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

// mostCompared bounds the pairs of rules a start compares, because a million flows would take hours. Flows beyond the bound
// get a gap without a comparison: a discontinuity too many is harmless, one too few is not.
const mostCompared = 4_000_000

// unfinished returns which flows have a gap because the last process died within a change. Until now the programs have counted
// by rules from before and after the change, so packets of one flow may have counted for another.
func (s *start) unfinished(configured []wanted, fates []fate, p pins) []bool {
	gaps := make([]bool, len(configured))
	if !p.changing && len(p.dropped) == 0 {
		return gaps
	}

	oneSided, moved := s.changed(configured, fates, p)
	compared := 0
	for i, w := range configured {
		for _, r := range w.rules {
			r.Order = fates[i].place
			compared += len(oneSided) + len(moved)
			wins := func(o xdp.Rule) bool { return o.WinsOver(&r) }
			overlaps := func(o xdp.Rule) bool { return o.Overlaps(&r) }
			if compared > mostCompared || slices.ContainsFunc(oneSided, wins) || slices.ContainsFunc(moved, overlaps) {
				gaps[i] = true
				break
			}
		}
	}
	return gaps
}

// keptRule is a pinned rule of a flow that keeps it, perhaps with another order.
type keptRule struct {
	found xdp.Rule
	order uint32 // of the rule from now on
}

// changed returns the rules which the unfinished change was adding, removing or moving.
//
// A rule of oneSided exists on one side only: it is pinned without a configured flow, or a configured flow needs it and it is not
// pinned. Flows below it may have counted its packets, or may lack some of their own. A moved rule is pinned, but its flow gets
// another rule in its place, or the same rule in another order. This concerns all flows with an overlap.
func (s *start) changed(configured []wanted, fates []fate, p pins) (oneSided, moved []xdp.Rule) {
	orderless := func(r xdp.Rule) xdp.Rule {
		r.Order = 0
		r.Drop = false
		return r
	}

	missing := make(map[xdp.Rule]xdp.Rule) // by orderless rule: what flows with an adopted counter are to have
	own := make(map[uint32]bool)           // the adopted counters
	for i, w := range configured {
		for _, r := range w.rules {
			r.Counter = fates[i].counter
			r.Order = fates[i].place
			if !fates[i].adopts {
				oneSided = append(oneSided, r)
				continue
			}
			missing[orderless(r)] = r
			own[r.Counter] = true
		}
	}
	stray := make(map[uint32]bool) // by counter
	for _, c := range p.counters {
		stray[c.ID] = s.idle[c.ID] && !strings.HasPrefix(c.Owner, apartPrefix)
	}

	var kept []keptRule
	for _, r := range slices.Concat(p.dropped, p.rules) {
		switch to, wanted := missing[orderless(r)]; {
		case wanted:
			kept = append(kept, keptRule{found: r, order: to.Order})
		case own[r.Counter]:
			moved = append(moved, r)
		case stray[r.Counter]:
			oneSided = append(oneSided, r)
		}
	}
	for _, k := range kept {
		delete(missing, orderless(k.found))
	}
	oneSided = slices.AppendSeq(oneSided, maps.Values(missing))
	return oneSided, append(moved, reordered(kept)...)
}

// reordered returns rules whose order among each other changes. A start may number all rules anew, so we compare the sequences and
// not the numbers. Of two rules with exchanged places it returns the future loser: one is enough, since the flows of both overlap.
func reordered(kept []keptRule) (moved []xdp.Rule) {
	slices.SortFunc(kept, func(a, b keptRule) int {
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
	return moved
}
