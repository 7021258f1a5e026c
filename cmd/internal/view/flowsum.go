package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/selection"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
)

// flowEntry returns the entry of a flow as it would be in the mirror, with the fields used by a selection.
func flowEntry(f flow.Flow) shm.Entry {
	return shm.Entry{Name: f.Name, Kind: "flow", Labels: f.Labels, Text: f.Identity()}
}

// SelectFlows returns the selected flows. If the instance lacks some of them, it also returns a *selection.UnmetError.
func SelectFlows(s *selection.Selection, placements []dataplane.Placement) (out []dataplane.Placement, err error) {
	entries := make([]shm.Entry, len(placements))
	for i, p := range placements {
		entries[i] = flowEntry(p.Flow)
		if s.Has(entries[i]) {
			out = append(out, p)
		}
	}
	return out, s.Unmet("the instance", entries, len(out))
}

// flowSum counts the flows of a group by their source.
type flowSum struct {
	selection.Group
	flows         int
	countBySource map[string]int // of flows, by the text of the source
}

// sumFlows counts the flows of each group, in the order of the groups.
func sumFlows(s *selection.Selection, placements []dataplane.Placement) []flowSum {
	sumByGroup := make(map[selection.Group]*flowSum)
	for _, p := range placements {
		g := s.Group(flowEntry(p.Flow))
		sum := sumByGroup[g]
		if sum == nil {
			sum = &flowSum{Group: g, countBySource: make(map[string]int)}
			sumByGroup[g] = sum
		}
		sum.flows++
		sum.countBySource[Source(p.Source)]++
	}

	out := make([]flowSum, 0, len(sumByGroup))
	for _, sum := range sumByGroup {
		out = append(out, *sum)
	}
	slices.SortFunc(out, func(a, b flowSum) int { return a.Group.Compare(b.Group) })
	return out
}

// sources returns the sources, beginning with the one that counts most flows.
func (s flowSum) sources() []string {
	return slices.SortedFunc(maps.Keys(s.countBySource), func(a, b string) int {
		return cmp.Or(s.countBySource[b]-s.countBySource[a], strings.Compare(a, b))
	})
}

// flowSumJSON is one sum in the JSON of flows list --sum-by.
type flowSumJSON struct {
	Labels  map[string]*string `json:"labels"` // of --sum-by; null: the flows have no such label
	Flows   int                `json:"flows"`
	Sources []flowSourceJSON   `json:"sources"` // that with most flows first
}

// flowSourceJSON is a source, with the number of flows that it counts.
type flowSourceJSON struct {
	Source string `json:"source"` // "-": nothing counts the flows
	Flows  int    `json:"flows"`
}

func (s flowSum) json() flowSumJSON {
	j := flowSumJSON{Labels: labelsOf(s.Group), Flows: s.flows, Sources: []flowSourceJSON{}}
	for _, source := range s.sources() {
		j.Sources = append(j.Sources, flowSourceJSON{source, s.countBySource[source]})
	}
	return j
}

func renderFlowSums(sums []flowSum) string {
	t := format.Table{Heading: []string{"FLOWS OF", ">FLOWS", "COUNTED BY"}}
	for _, s := range sums {
		var by []string
		for _, source := range s.sources() {
			by = append(by, fmt.Sprintf("%s: %s", source, format.Count(uint64(s.countBySource[source]))))
		}
		t.Add(s.Group.String(), format.Count(uint64(s.flows)), strings.Join(by, "; "))
	}
	return t.Render()
}
