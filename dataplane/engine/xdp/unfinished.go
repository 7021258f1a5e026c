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

// mostCompared is the number of pairs of rules above which all flows are taken for affected.
const mostCompared = 4_000_000

// noteUnfinished notes a gap of the flows of a start whose packets may have counted for other flows, or the other way round,
// after a process had died within a change: the next process has the flows from before the change, and the programs had
// some of the rules of after it. rules are those of each of flows.
func (b *Backend) noteUnfinished(flows []*entry, rules [][]xdp.Rule, out []backend.Installed) {
	changing, found := b.rules.Unfinished()
	if !changing && len(found) == 0 {
		return
	}
	found = slices.AppendSeq(slices.Clone(found), maps.Keys(b.there))

	configured := make(map[string]bool)
	for _, f := range b.configured {
		configured[owner(f)] = true
	}
	for _, x := range flows {
		configured[x.owner] = true
	}
	for _, x := range b.flows {
		configured[x.owner] = true
	}
	stray := make(map[uint32]bool) // counters of flows that are not configured
	for _, c := range b.rules.Counters() {
		stray[c.ID] = !configured[c.Owner] && !strings.HasPrefix(c.Owner, apart)
	}
	strays := slices.DeleteFunc(slices.Clone(found), func(r xdp.Rule) bool { return !stray[r.Counter] })
	moved := movedOf(found, flows, rules)
	compared := 0
	for i := range flows {
		for _, r := range rules[i] {
			compared += len(strays) + len(moved)
			isStrayed := func(s xdp.Rule) bool { return s.WinsOver(&r) }
			isPassed := func(s xdp.Rule) bool { return s.Overlaps(&r) }
			if compared > mostCompared || slices.ContainsFunc(strays, isStrayed) || slices.ContainsFunc(moved, isPassed) {
				out[i].Gap = true
				break
			}
		}
	}
}

// movedOf returns the rules of flows among those that were found, if the flows are to have other ones, or in another order. The
// numbers of the order do not matter: a start may give others.
func movedOf(found []xdp.Rule, flows []*entry, rules [][]xdp.Rule) (moved []xdp.Rule) {
	orderless := func(r xdp.Rule) xdp.Rule {
		r.Order, r.Drop = 0, false
		return r
	}
	wanted := make(map[xdp.Rule]uint32) // the place of each
	own := make(map[uint32]bool)
	for i, x := range flows {
		own[x.counter] = true
		for _, r := range rules[i] {
			wanted[orderless(r)] = r.Order
		}
	}

	var stay []xdp.Rule
	for _, r := range found {
		if _, is := wanted[orderless(r)]; is {
			stay = append(stay, r)
		} else if own[r.Counter] {
			moved = append(moved, r)
		}
	}
	slices.SortFunc(stay, func(a, b xdp.Rule) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(wanted[orderless(a)], wanted[orderless(b)]))
	})
	last := xdp.Rule{}
	for _, r := range stay {
		if r.Priority == last.Priority && r.Order < last.Order {
			moved = append(moved, r)
			continue
		}
		last = r
	}
	return moved
}
