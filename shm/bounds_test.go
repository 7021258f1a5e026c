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

func TestCopyBlockSame(t *testing.T) {
	rnd := seed(t)
	for _, avx2 := range []bool{false, true} {
		avx2 = setAVX2(t, avx2)
		for range 2000 {
			var src, dst Block
			for i := range src {
				src[i] = Value{rnd.Uint64(), rnd.Uint64(), 5}
			}
			odd := rnd.IntN(2*BlockLen) - BlockLen
			if odd >= 0 {
				src[odd].SampledAt ^= 1 << rnd.IntN(64)
			}
			same := copyBlockSame(&dst, &src)
			if dst != src {
				t.Fatal("not a copy")
			}
			if same && odd >= 0 || avx2 && !same && odd < 0 {
				t.Fatalf("row %d differs: same %v", odd, same)
			}
		}
	}
}
