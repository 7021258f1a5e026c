package engine

import "slices"

// relate notes which flow wins between each fresh flow and each flow of the stack that overlaps it, and
// adds the fresh flows to the stack. It costs as much as there are flows that may overlap the fresh ones.
func (s *stack) relate(fresh []*counted) {
	for _, c := range fresh {
		s.related.Overlapping(&c.Flow, func(o *counted) { rank(c, o) })
		s.related.Add(c)
	}
}

// rank notes which of two flows that overlap wins.
func rank(a, b *counted) {
	if byPrecedence(a, b) > 0 {
		a, b = b, a
	}
	a.below = append(a.below, b)
	b.above, b.unsorted = append(b.above, a), true
}

// winners are the flows that win over c on packets that both match, in their order.
func (c *counted) winners() []*counted {
	if c.unsorted {
		slices.SortFunc(c.above, byPrecedence)
		c.unsorted = false
	}
	return c.above
}

// losers are the flows that some of winners win over, perhaps several times.
func losers(winners []*counted) []*counted {
	out := []*counted{}
	for _, c := range winners {
		if c.offload != nil {
			out = append(out, c.below...)
		}
	}
	return out
}

// unrelate forgets flows that are gone.
func (s *stack) unrelate(gone []*counted) {
	out, touched := make(map[*counted]bool, len(gone)), make(map[*counted]bool)
	for _, c := range gone {
		out[c] = true
		s.related.Remove(c)
	}
	for _, c := range gone {
		for _, o := range slices.Concat(c.above, c.below) {
			touched[o] = !out[o]
		}
	}
	left := func(o *counted) bool { return out[o] }
	for o, stays := range touched {
		if stays {
			o.above, o.below = slices.DeleteFunc(o.above, left), slices.DeleteFunc(o.below, left)
		}
	}
}
