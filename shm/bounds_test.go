package shm

import (
	"slices"
	"testing"
)

func TestBounds(t *testing.T) {
	rnd := seed(t)
	for range 20000 {
		var c copyMem
		var ats []int64
		n := rnd.IntN(BlockLen + 1)
		base := int64(rnd.IntN(3)) // 0: some were never sampled
		for i := range n {
			at := base
			if rnd.IntN(20) == 0 {
				at = int64(rnd.IntN(4))
			}
			if c.values[i].SampledAt = at; at != 0 {
				ats = append(ats, at)
			}
		}
		var low, high int64
		if len(ats) > 0 {
			low, high = slices.Min(ats), slices.Max(ats)
		}
		if l, h := c.bounds(n); l != low || h != high {
			t.Fatalf("%v: %d to %d, want %d to %d", c.values[:n], l, h, low, high)
		}
	}
}
