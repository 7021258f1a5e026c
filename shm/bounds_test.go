package shm

import (
	"slices"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/seed"
)

func TestBoundsSkipRowsWithoutASample(t *testing.T) {
	rnd := seed.Rand(t)
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

// The AVX2 way of publishing a block must leave the same bytes as the ordinary one.
func TestPublishSameLeavesTheBytesOfTheOrdinaryWay(t *testing.T) {
	rnd := seed.Rand(t)
	w, r := heapMirror(t, 128, 0, 0, Options{})
	addN(t, w, 64, false)
	var all Snapshot
	for _, avx2 := range []bool{false, true} {
		setAVX2(t, avx2)
		for range 1000 {
			var src Block
			for i := range src {
				src[i] = Value{rnd.Uint64(), rnd.Uint64(), 5}
			}
			low, high := int64(5), int64(5)
			if odd := rnd.IntN(2 * BlockLen); odd < BlockLen {
				src[odd].SampledAt = int64(1 + rnd.IntN(1<<62))
				low, high = min(low, src[odd].SampledAt), max(high, src[odd].SampledAt)
			}
			cycle := w.BeginCycle()
			w.PublishBlock(0, &src)
			w.EndCycle(1)
			b := w.v.slot(0).block()
			want := copyMem{cycle: cycle, oldest: low, newest: high, live: ^uint64(0), values: src}
			if got := *b.copy(*b.seq()); got != want || *b.intent() != *b.seq() {
				t.Fatalf("published %+v, want %+v", got, want)
			}
			if err := r.Snapshot(&all); err != nil || all.segments[0].blocks[0] != want || all.Cycle != cycle {
				t.Fatalf("%v: read %+v, want %+v", err, all.segments[0].blocks[0], want)
			}
		}
	}
}
