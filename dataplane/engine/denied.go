package engine

import (
	"container/heap"
	"slices"
)

// precedenceHeap is a heap of flows in order of precedence.
type precedenceHeap []*flowState

func (h precedenceHeap) Len() int           { return len(h) }
func (h precedenceHeap) Less(i, j int) bool { return byPrecedence(h[i], h[j]) < 0 }
func (h precedenceHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *precedenceHeap) Push(c any)        { *h = append(*h, c.(*flowState)) }
func (h *precedenceHeap) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	return c
}

// denials are flows that the device refused although it could match them, mostly because it was full. When n flows leave hardware,
// arrange offers up to n of these again. If a flow is removed, or enters hardware another way, it stays in the heap until take finds it.
type denials struct{ flows precedenceHeap }

func (d *denials) add(c *flowState) {
	if !c.isDenied {
		c.isDenied = true
		heap.Push(&d.flows, c)
	}
}

// drop removes a flow from the heap, before its precedence changes.
func (d *denials) drop(c *flowState) {
	if !c.isDenied {
		return
	}
	c.isDenied = false
	heap.Remove(&d.flows, slices.Index(d.flows, c))
}

// take removes up to n waiting flows from the heap and returns them, in order of precedence. If one is refused again, callers must
// add it again.
func (d *denials) take(n int, waits func(*flowState) bool) (out []*flowState) {
	for len(out) < n && len(d.flows) > 0 {
		c := heap.Pop(&d.flows).(*flowState)
		c.isDenied = false
		if waits(c) {
			out = append(out, c)
		}
	}
	return out
}
