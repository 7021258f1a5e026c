package rdma

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/overlap"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/probe"
)

// levelTable is the flows that one device counts in one direction, with their levels. Hardware has few priorities,
// and rdma-core promises no order among the rules of one. So flows that overlap have levels that rise in the order
// of precedence; other flows share levels.
type levelTable struct{ flows *overlap.Index[*deviceFlow] }

func newLevelTable() levelTable {
	return levelTable{overlap.NewIndex(func(p *deviceFlow) *flow.Flow { return &p.flow.Flow })}
}

// levelChange is a flow that moves to a later level.
type levelChange struct {
	flow *deviceFlow
	to   int
}

// assign chooses a level for a flow, behind the flows that win over it. Flows that it wins over and that are not
// behind it move further back, in the order of the result: the last one first, so that any two flows that overlap
// are in order at every moment.
func (s *levelTable) assign(p *deviceFlow) (pushes []levelChange, err error) {
	to := map[*deviceFlow]int{p: 0}
	at := func(q *deviceFlow) int {
		if l, ok := to[q]; ok {
			return l
		}
		return q.level
	}
	behind := &flowHeap{} // flows that may have to move, the one that wins first
	known := make(map[*deviceFlow]bool)
	var twins error
	reach := func(m *deviceFlow) {
		s.flows.Overlapping(&m.flow.Flow, func(o *deviceFlow) {
			switch {
			case o == m || known[o]:
			case backend.ByPrecedence(o.flow.Placed, m.flow.Placed) < 0:
				if m == p {
					if o.mode == dataplane.ModeDontTrap {
						twins = countedTwice(o.flow.Name)
					}
					to[p] = max(to[p], o.level+1)
				}
			default:
				if m == p && p.mode == dataplane.ModeDontTrap {
					twins = countedTwice(p.flow.Name)
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
	moved := []*deviceFlow{p} // in the order of precedence
	for behind.Len() > 0 {
		below := heap.Pop(behind).(*deviceFlow)
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
		if to[m] >= numLevels {
			return nil, &probe.UnsupportedError{
				Feature: "keeping the order of overlapping flows", Object: "the NIC",
				Reason: fmt.Sprintf("it has %d priorities, and more flows than that win over one another in a row", numLevels),
				Fix:    "make the flows overlap less, or leave one of them to backend xdp",
			}
		}
	}
	p.level = to[p]
	for _, m := range moved[1:] {
		pushes = append(pushes, levelChange{m, to[m]})
	}
	slices.SortStableFunc(pushes, func(a, b levelChange) int { return cmp.Compare(b.to, a.to) })
	s.flows.Add(p)
	return pushes, nil
}

// flowHeap is a heap of flows on one device: the one that wins over the others first.
type flowHeap []*deviceFlow

func (h flowHeap) Len() int { return len(h) }
func (h flowHeap) Less(i, j int) bool {
	return backend.ByPrecedence(h[i].flow.Placed, h[j].flow.Placed) < 0
}
func (h flowHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *flowHeap) Push(p any)   { *h = append(*h, p.(*deviceFlow)) }
func (h *flowHeap) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	*h = (*h)[:last]
	return p
}

// countedTwice refuses a flow below an overlapping one in mode dont-trap.
func countedTwice(above string) error {
	return &probe.UnsupportedError{
		Feature: "counting below an overlapping flow", Object: "the NIC",
		Reason: fmt.Sprintf("flow %q wins over it, and a packet that a DONT_TRAP rule counts goes on to the next one: it would be counted twice", above),
		Fix:    "let the flows not overlap, or use a device with DevX",
	}
}

func (s *levelTable) meet(a, b *deviceFlow) bool { return flow.Overlap(&a.flow.Flow, &b.flow.Flow) }

// remove removes a flow. The others keep their levels.
func (s *levelTable) remove(p *deviceFlow) { s.flows.Remove(p) }

// join writes names as a list: "swnic0,swnic1".
func join[T ~string](words []T) string {
	s := make([]string, len(words))
	for i, w := range words {
		s[i] = string(w)
	}
	return strings.Join(s, ",")
}
