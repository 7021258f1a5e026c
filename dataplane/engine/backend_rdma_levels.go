package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/dataplane/probe"
)

// side is what one device counts in one direction: its flows in the order in which
// they win. Hardware has few priorities, and among rules of one no order that rdma-core
// promises. So flows that overlap get levels that rise in the order in which they win; the
// others share theirs.
type side struct{ parts []*part }

// push is a flow that goes to a later level.
type push struct {
	part *part
	to   int
}

// place finds a level for a part: behind the flows that win over it. Flows
// that it wins over and that are not behind it go further back, in the order of the
// answer: the last one first, so that at every moment any two that overlap are in order.
func (s *side) place(p *part) (pushes []push, err error) {
	to := map[*part]int{p: 0}
	at := func(q *part) int {
		if l, ok := to[q]; ok {
			return l
		}
		return q.level
	}
	i, _ := slices.BinarySearchFunc(s.parts, p, func(a, b *part) int { return wins(a.flow.Placed, b.flow.Placed) })
	for _, above := range s.parts[:i] {
		if !s.meet(above, p) {
			continue
		}
		if above.mode == modeDontTrap {
			return nil, twice(above.flow.Name)
		}
		to[p] = max(to[p], above.level+1)
	}
	moved := []*part{p} // in the order in which they win
	for _, below := range s.parts[i:] {
		if p.mode == modeDontTrap && s.meet(p, below) {
			return nil, twice(p.flow.Name)
		}
		level := below.level
		for _, m := range moved {
			if l := at(m); l >= level && s.meet(m, below) {
				level = l + 1
			}
		}
		if level != below.level {
			to[below] = level
			moved = append(moved, below)
		}
	}
	for _, m := range moved {
		if to[m] >= levels {
			return nil, &probe.UnsupportedError{
				Feature: "keeping the order of overlapping flows", Object: "the NIC",
				Reason: fmt.Sprintf("it has %d priorities, and more flows than that win over one another in a row", levels),
				Fix:    "make the flows overlap less, or leave one of them to backend xdp",
			}
		}
	}
	p.level = to[p]
	for _, m := range moved[1:] {
		pushes = append(pushes, push{m, to[m]})
	}
	slices.SortStableFunc(pushes, func(a, b push) int { return cmp.Compare(b.to, a.to) })
	s.parts = slices.Insert(s.parts, i, p)
	return pushes, nil
}

// twice refuses a flow under an overlapping one in mode dont-trap.
func twice(above string) error {
	return &probe.UnsupportedError{
		Feature: "counting below an overlapping flow", Object: "the NIC",
		Reason: fmt.Sprintf("flow %q wins over it, and a packet that a DONT_TRAP rule counts goes on to the next one: it would be counted twice", above),
		Fix:    "let the flows not overlap, or use a device with DevX",
	}
}

func (s *side) meet(a, b *part) bool { return overlap(&a.flow.Flow, &b.flow.Flow) }

// remove takes a part out. The others stay on their levels.
func (s *side) remove(p *part) {
	if i := slices.Index(s.parts, p); i >= 0 {
		s.parts = slices.Delete(s.parts, i, i+1)
	}
}

// join writes names as a list: "swnic0,swnic1".
func join[T ~string](words []T) string {
	s := make([]string, len(words))
	for i, w := range words {
		s[i] = string(w)
	}
	return strings.Join(s, ",")
}
