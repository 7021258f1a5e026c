package xdp

import (
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

// movedOf returns the rules of flows among those that were found, if they have another rank, mask or key than the flows are to
// have.
func movedOf(found []xdp.Rule, flows []*entry, rules [][]xdp.Rule) (moved []xdp.Rule) {
	counts := func(r xdp.Rule) xdp.Rule { r.Drop = false; return r }
	wanted := make(map[xdp.Rule]bool)
	own := make(map[uint32]bool)
	for i, x := range flows {
		own[x.counter] = true
		for _, r := range rules[i] {
			wanted[counts(r)] = true
		}
	}
	for _, r := range found {
		if own[r.Counter] && !wanted[counts(r)] {
			moved = append(moved, r)
		}
	}
	return moved
}
