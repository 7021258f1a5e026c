package engine

// bankHeap is the queue of a hwReader: by container/heap, the bank that is due first
// is bankHeap[0]. Every bank knows its place.
type bankHeap []*hwBank

func (h bankHeap) Len() int           { return len(h) }
func (h bankHeap) Less(i, j int) bool { return h[i].due < h[j].due }

func (h bankHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *bankHeap) Push(x any) {
	b := x.(*hwBank)
	b.place = len(*h)
	*h = append(*h, b)
}

func (h *bankHeap) Pop() any {
	last := len(*h) - 1
	b := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	b.place = -1
	return b
}
