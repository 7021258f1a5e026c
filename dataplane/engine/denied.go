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

// denials are flows that fit the hardware and that its device refused, mostly because it was full. When n flows leave the
// hardware, arrange tries up to n of these again. A flow that was removed, or that hardware counts, stays in the heap
// until take drops it.
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

// take returns up to n flows that still wait, in order of precedence. A flow that is refused again has to be added again.
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
