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

// noteUnfinished notes a gap of each flow whose packets may have counted for another flow, or the other way round, because
// the last process died within a change. This start installs the flows from before that change, while programs counted by
// some of the rules from after it. rules and out are those of each of flows.
func (b *Backend) noteUnfinished(flows []*entry, rules [][]xdp.Rule, out []backend.Installed) {
	changing, dropped := b.rules.Unfinished()
	if !changing && len(dropped) == 0 {
		return
	}

	found := slices.AppendSeq(slices.Clone(dropped), maps.Keys(b.there))
	strays := b.straysOf(found, flows)
	moved := movedOf(found, flows, rules)

	compared := 0
	for i := range flows {
		for _, r := range rules[i] {
			compared += len(strays) + len(moved)
			wins := func(stray xdp.Rule) bool { return stray.WinsOver(&r) }
			overlaps := func(moved xdp.Rule) bool { return moved.Overlaps(&r) }
			if compared > mostCompared || slices.ContainsFunc(strays, wins) || slices.ContainsFunc(moved, overlaps) {
				out[i].Gap = true
				break
			}
		}
	}
}

// straysOf returns those of the found rules that belong to no configured flow: the change was to add or to remove the flow.
func (b *Backend) straysOf(found []xdp.Rule, flows []*entry) []xdp.Rule {
	configured := make(map[string]bool) // by owner
	for _, f := range b.configured {
		configured[owner(f)] = true
	}
	for _, x := range flows {
		configured[x.owner] = true
	}
	for _, x := range b.flows {
		configured[x.owner] = true
	}

	stray := make(map[uint32]bool) // by counter
	for _, c := range b.rules.Counters() {
		stray[c.ID] = !configured[c.Owner] && !strings.HasPrefix(c.Owner, apartPrefix)
	}
	return slices.DeleteFunc(slices.Clone(found), func(r xdp.Rule) bool { return !stray[r.Counter] })
}

// movedOf returns those of the found rules that belong to flows, and that the flows are not to have, or in another order.
// Only their order counts, not its numbers: a start may number the rules anew.
func movedOf(found []xdp.Rule, flows []*entry, rules [][]xdp.Rule) (moved []xdp.Rule) {
	orderless := func(r xdp.Rule) xdp.Rule {
		r.Order, r.Drop = 0, false
		return r
	}
	wantedOrder := make(map[xdp.Rule]uint32) // by orderless rule
	own := make(map[uint32]bool)             // counters of flows
	for i, x := range flows {
		own[x.counter] = true
		for _, r := range rules[i] {
			wantedOrder[orderless(r)] = r.Order
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
