package engine

import "container/heap"

// byPlace is a heap of flows: the one that wins over the others first.
type byPlace []*counted

func (h byPlace) Len() int           { return len(h) }
func (h byPlace) Less(i, j int) bool { return byPrecedence(h[i], h[j]) < 0 }
func (h byPlace) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byPlace) Push(c any)        { *h = append(*h, c.(*counted)) }
func (h *byPlace) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	return c
}

// denials are flows that fit the overlay and that its device refused, mostly because it was full. When n
// flows leave the overlay, the engine asks for up to n of these again. Flows that were removed, or that
// the overlay has taken since, stay in the list until take drops them.
type denials struct{ flows byPlace }

func (d *denials) add(c *counted) {
	if !c.isDenied {
		c.isDenied = true
		heap.Push(&d.flows, c)
	}
}

// take returns up to n flows that still wait, the best first. They have to be added again if they are refused.
func (d *denials) take(n int, waits func(*counted) bool) (out []*counted) {
	for len(out) < n && len(d.flows) > 0 {
		c := heap.Pop(&d.flows).(*counted)
		c.isDenied = false
		if waits(c) {
			out = append(out, c)
		}
	}
	return out
}
