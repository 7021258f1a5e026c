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
	a := &assignment{
		table:  s,
		flow:   p,
		level:  map[*deviceFlow]int{p: 0},
		queued: make(map[*deviceFlow]bool),
	}
	if err := a.place(); err != nil {
		return nil, err
	}
	moved := a.pushBack()

	for _, m := range append([]*deviceFlow{p}, moved...) {
		if a.level[m] >= numLevels {
			return nil, &probe.UnsupportedError{
				Feature: "keeping the order of overlapping flows",
				Object:  "the NIC",
				Reason:  fmt.Sprintf("it has %d priorities, and more flows than that win over one another in a row", numLevels),
				Fix:     "make the flows overlap less, or leave one of them to backend xdp",
			}
		}
	}

	p.level = a.level[p]
	for _, m := range moved {
		pushes = append(pushes, levelChange{m, a.level[m]})
	}
	slices.SortStableFunc(pushes, func(a, b levelChange) int { return cmp.Compare(b.to, a.to) })
	s.flows.Add(p)
	return pushes, nil
}

// assignment is the choice of the level of one flow, which is not in the table yet.
type assignment struct {
	table  *levelTable
	flow   *deviceFlow
	level  map[*deviceFlow]int  // the new levels: of flow, and of the flows that move
	behind flowHeap             // flows that may have to move, the one that wins first
	queued map[*deviceFlow]bool // flows that are or were in behind
}

// place sets the level of the flow behind all that win over it, and queues those that it wins over. In mode dont-trap
// a packet goes on to the next rule, so nothing may come behind an overlapping flow: place returns an error.
func (a *assignment) place() (err error) {
	p := a.flow
	a.table.flows.Overlapping(&p.flow.Flow, func(o *deviceFlow) {
		if backend.ByPrecedence(o.flow.Placed, p.flow.Placed) < 0 {
			if o.mode == dataplane.ModeDontTrap {
				err = countedTwice(o.flow.Name)
			}
			a.level[p] = max(a.level[p], o.level+1)
			return
		}
		if p.mode == dataplane.ModeDontTrap {
			err = countedTwice(p.flow.Name)
		}
		a.queue(o)
	})
	return err
}

// pushBack moves queued flows behind the flow and behind those that have moved before, and returns the moved ones in
// the order of precedence. A flow that moves may reach others that it wins over: these are queued, too.
func (a *assignment) pushBack() (moved []*deviceFlow) {
	before := []*deviceFlow{a.flow} // the flow, and the moved ones
	for a.behind.Len() > 0 {
		below := heap.Pop(&a.behind).(*deviceFlow)
		level := below.level
		for _, m := range before {
			if a.level[m] >= level && a.table.meet(m, below) {
				level = a.level[m] + 1
			}
		}
		if level == below.level {
			continue
		}
		a.level[below] = level
		before = append(before, below)
		a.queueBelow(below)
	}
	return before[1:]
}

// queueBelow queues the flows that m overlaps and wins over.
func (a *assignment) queueBelow(m *deviceFlow) {
	a.table.flows.Overlapping(&m.flow.Flow, func(o *deviceFlow) {
		if o != m && backend.ByPrecedence(o.flow.Placed, m.flow.Placed) >= 0 {
			a.queue(o)
		}
	})
}

// queue queues a flow once.
func (a *assignment) queue(o *deviceFlow) {
	if a.queued[o] {
		return
	}
	a.queued[o] = true
	heap.Push(&a.behind, o)
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
		Feature: "counting below an overlapping flow",
		Object:  "the NIC",
		Reason:  fmt.Sprintf("flow %q wins over it, and a packet that a DONT_TRAP rule counts goes on to the next one: it would be counted twice", above),
		Fix:     "let the flows not overlap, or use a device with DevX",
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
