package engine

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/dataplane/probe"
)

// side is what one device counts in one direction. Hardware has few priorities, and among rules
// of one no order that rdma-core promises. So flows that overlap get levels that rise in the order in
// which they win; the others share theirs.
type side struct{ parts *flow.Index[*part] }

func newSide() side {
	return side{flow.NewIndex(func(p *part) *flow.Flow { return &p.flow.Flow })}
}

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
	behind := &partHeap{} // parts that a moved one may push, the one that wins first
	known := make(map[*part]bool)
	var twins error
	reach := func(m *part) {
		s.parts.Overlapping(&m.flow.Flow, func(o *part) {
			switch {
			case o == m || known[o]:
			case backend.ByPrecedence(o.flow.Placed, m.flow.Placed) < 0:
				if m == p {
					if o.mode == modeDontTrap {
						twins = twice(o.flow.Name)
					}
					to[p] = max(to[p], o.level+1)
				}
			default:
				if m == p && p.mode == modeDontTrap {
					twins = twice(p.flow.Name)
				}
				known[o] = true
				heap.Push(behind, o)
			}
		})
	}
	reach(p)
	if twins != nil {
		return nil, twins
	}
	moved := []*part{p} // in the order in which they win
	for behind.Len() > 0 {
		below := heap.Pop(behind).(*part)
		level := below.level
		for _, m := range moved {
			if l := at(m); l >= level && s.meet(m, below) {
				level = l + 1
			}
		}
		if level != below.level {
			to[below] = level
			moved = append(moved, below)
			reach(below)
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
	s.parts.Add(p)
	return pushes, nil
}

// partHeap is a heap of parts: the one that wins over the others first.
type partHeap []*part

func (h partHeap) Len() int { return len(h) }
func (h partHeap) Less(i, j int) bool {
	return backend.ByPrecedence(h[i].flow.Placed, h[j].flow.Placed) < 0
}
func (h partHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *partHeap) Push(p any)   { *h = append(*h, p.(*part)) }
func (h *partHeap) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	*h = (*h)[:last]
	return p
}

// twice refuses a flow under an overlapping one in mode dont-trap.
func twice(above string) error {
	return &probe.UnsupportedError{
		Feature: "counting below an overlapping flow", Object: "the NIC",
		Reason: fmt.Sprintf("flow %q wins over it, and a packet that a DONT_TRAP rule counts goes on to the next one: it would be counted twice", above),
		Fix:    "let the flows not overlap, or use a device with DevX",
	}
}

func (s *side) meet(a, b *part) bool { return flow.Overlap(&a.flow.Flow, &b.flow.Flow) }

// remove takes a part out. The others stay on their levels.
func (s *side) remove(p *part) { s.parts.Remove(p) }

// join writes names as a list: "swnic0,swnic1".
func join[T ~string](words []T) string {
	s := make([]string, len(words))
	for i, w := range words {
		s[i] = string(w)
	}
	return strings.Join(s, ",")
}
