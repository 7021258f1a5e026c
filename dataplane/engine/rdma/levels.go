package rdma

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/overlap"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/probe"
)

// levelTable has the flows that one device counts in one direction. Hardware has few priorities, and rdma-core promises no
// order among the rules of one. So we call priorities levels: overlapping flows get rising levels in the order of their
// precedence, and other flows share them.
type levelTable struct{ flows *overlap.Index[*deviceFlow] }

func newLevelTable() levelTable { return levelTable{newFlowIndex()} }

func newFlowIndex() *overlap.Index[*deviceFlow] {
	return overlap.NewIndex(func(p *deviceFlow) *flow.Flow { return &p.flow.Flow })
}

// levelChange is a flow that has to move to a later level.
type levelChange struct {
	flow *deviceFlow
	to   int
}

// assign chooses a level for a new flow, behind the flows that win over it, and adds it to the table. Flows that lose against
// it may have to move further back. The caller must move them in the order of pushes, the last one first. Then any two
// overlapping flows are in order at every moment.
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

// assignment is the work of one assign.
type assignment struct {
	table  *levelTable
	flow   *deviceFlow          // the new flow, not in the table yet
	level  map[*deviceFlow]int  // the new levels, of flow and of flows that move
	behind flowHeap             // flows that may have to move, by precedence
	queued map[*deviceFlow]bool // flows that are or were in behind
}

// place puts the new flow behind all flows that win over it, and queues those that lose against it. In mode dont-trap it
// returns an error if there is an overlap: a packet would go on to the next rule, and count twice.
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

// pushBack moves the queued flows behind the new flow, and behind flows that have moved already. A moved flow may now be on the
// level of others that lose against it, so it queues these, too. pushBack returns the moved flows by precedence.
func (a *assignment) pushBack() (moved []*deviceFlow) {
	if a.behind.Len() == 0 {
		return nil
	}
	before := newFlowIndex() // the flow, and the moved ones
	before.Add(a.flow)
	for a.behind.Len() > 0 {
		below := heap.Pop(&a.behind).(*deviceFlow)
		level := below.level
		before.Overlapping(&below.flow.Flow, func(m *deviceFlow) { level = max(level, a.level[m]+1) })
		if level == below.level {
			continue
		}
		a.level[below] = level
		moved = append(moved, below)
		before.Add(below)
		a.queueBelow(below)
	}
	return moved
}

// queueBelow queues the overlapping flows that lose against m.
func (a *assignment) queueBelow(m *deviceFlow) {
	a.table.flows.Overlapping(&m.flow.Flow, func(o *deviceFlow) {
		if o != m && backend.ByPrecedence(o.flow.Placed, m.flow.Placed) >= 0 {
			a.queue(o)
		}
	})
}

// queue queues a flow, unless it was queued before.
func (a *assignment) queue(o *deviceFlow) {
	if a.queued[o] {
		return
	}
	a.queued[o] = true
	heap.Push(&a.behind, o)
}

// flowHeap is a heap of flows by precedence, for container/heap.
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

// countedTwice returns the error of a flow below an overlapping one in mode dont-trap.
func countedTwice(above string) error {
	return &probe.UnsupportedError{
		Feature: "counting below an overlapping flow",
		Object:  "the NIC",
		Reason:  fmt.Sprintf("flow %q wins over it, and a packet that a DONT_TRAP rule counts goes on to the next one: it would be counted twice", above),
		Fix:     "let the flows not overlap, or use a device with DevX",
	}
}

// remove removes a flow. The others keep their levels.
func (s *levelTable) remove(p *deviceFlow) { s.flows.Remove(p) }
