package rdma

// poolHeap is the queue of a reader, for container/heap: poolHeap[0] is due first. Each pool knows its place, so
// it can be removed from the middle.
type poolHeap []*slotPool

func (h poolHeap) Len() int           { return len(h) }
func (h poolHeap) Less(i, j int) bool { return h[i].due < h[j].due }

func (h poolHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *poolHeap) Push(x any) {
	b := x.(*slotPool)
	b.place = len(*h)
	*h = append(*h, b)
}

func (h *poolHeap) Pop() any {
	last := len(*h) - 1
	b := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	b.place = -1
	return b
}
