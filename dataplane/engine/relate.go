package engine

import "slices"

// relate adds fresh flows to the stack. For each pair of overlapping flows it notes which of the two wins. Its cost grows with the
// number of flows that may overlap the fresh ones, and not with the size of the stack.
func (s *stack) relate(fresh []*flowState) {
	for _, c := range fresh {
		s.related.Overlapping(&c.Flow, func(o *flowState) {
			a, b := c, o // a wins
			if byPrecedence(a, b) > 0 {
				a, b = o, c
			}
			a.below = append(a.below, b)
			b.above = append(b.above, a)
			b.unsorted = true
		})
		s.related.Add(c)
	}
}

// winners returns the overlapping flows that win over c, in order of precedence.
func (c *flowState) winners() []*flowState {
	if c.unsorted {
		slices.SortFunc(c.above, byPrecedence)
		c.unsorted = false
	}
	return c.above
}

// losers returns the flows that lose against one of winners. It may return a flow several times.
func losers(winners []*flowState) []*flowState {
	out := []*flowState{}
	for _, c := range winners {
		if c.offload != nil {
			out = append(out, c.below...)
		}
	}
	return out
}

// unrelate removes flows from the stack.
func (s *stack) unrelate(gone []*flowState) {
	out, touched := make(map[*flowState]bool, len(gone)), make(map[*flowState]bool)
	for _, c := range gone {
		out[c] = true
		s.related.Remove(c)
	}
	for _, c := range gone {
		for _, o := range slices.Concat(c.above, c.below) {
			touched[o] = !out[o]
		}
	}
	left := func(o *flowState) bool { return out[o] }
	for o, stays := range touched {
		if stays {
			o.above = slices.DeleteFunc(o.above, left)
			o.below = slices.DeleteFunc(o.below, left)
		}
	}
}
