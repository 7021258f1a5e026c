package shm

import (
	"sync/atomic"
	"testing"
)

// publishAt publishes block n of w with one value at one time.
func publishAt(w *Writer, n int, packets uint64, at int64) {
	var b Block
	for i := range b {
		b[i] = Value{packets, packets, at}
	}
	w.PublishBlock(n, &b)
}

// The label of a snapshot must cover every block, whether all blocks are of one cycle or not.
func TestSnapshotLabelCoversEachBlock(t *testing.T) {
	for name, c := range map[string]struct {
		times []int64 // of each block; 0: published without a sampled value
		late  int     // a block that is published one cycle later; -1: none
		want  Label
	}{
		"one label":     {[]int64{5, 5, 5, 5}, -1, Label{true, 1, 1, 1, 5, 5, 0, 4}},
		"none sampled":  {[]int64{0, 0, 0, 0}, -1, Label{}},
		"first older":   {[]int64{3, 5, 5, 5}, -1, Label{true, 1, 1, 1, 3, 5, 2, 4}},
		"last newer":    {[]int64{5, 5, 5, 9}, -1, Label{true, 1, 1, 1, 5, 9, 4, 4}},
		"middle absent": {[]int64{5, 0, 5, 5}, -1, Label{true, 1, 1, 1, 5, 5, 0, 3}},
		"middle later":  {[]int64{5, 5, 5, 5}, 2, Label{false, 0, 1, 2, 5, 5, 0, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := heapMirror(t, 4*BlockLen, 0, 0, Options{})
			addN(t, w, 4*BlockLen, false)
			w.BeginCycle()
			for i, at := range c.times {
				if i != c.late {
					publishAt(w, i, 1, at)
				}
			}
			w.EndCycle(1)
			if c.late >= 0 {
				w.BeginCycle()
				publishAt(w, c.late, 1, c.times[c.late])
				w.EndCycle(2)
			}
			var s Snapshot
			if err := r.Snapshot(&s); err != nil || s.Label != c.want {
				t.Errorf("label %+v, %v; want %+v", s.Label, err, c.want)
			}
		})
	}
}

// A run of blocks is accepted only if none was published meanwhile and none was taken by its intent word.
func TestRunOfBlocksIsRejectedIfAnyWasPublished(t *testing.T) {
	w, r := heapMirror(t, 4*BlockLen, 0, 0, Options{})
	addN(t, w, 4*BlockLen, false)
	list, err := r.v.segments()
	if err != nil {
		t.Fatal(err)
	}
	blocks, c := list[0].blocks, scratch{}
	for i := range 4 {
		c.seqs[i] = atomic.LoadUint64(&blocks.seqs[i].word)
	}
	if !c.unchanged(blocks, 0, 4) {
		t.Error("a run that nothing has changed does not stand")
	}
	w.BeginCycle()
	publishAt(w, 2, 1, 1)
	w.EndCycle(1)
	for from := range 4 {
		for to := from; to <= 4; to++ {
			if got, want := c.unchanged(blocks, from, to), from > 2 || to <= 2; got != want {
				t.Errorf("after a publish of block 2, blocks %d to %d stand: %t", from, to, got)
			}
		}
	}
	c.byIntent = 1
	if c.unchanged(blocks, 3, 4) {
		t.Error("a copy that was taken by its intent word stands by the sequence word")
	}
}

// A snapshot begins between two cycles. It must not take copies of a cycle that begins meanwhile, even if all blocks are of it.
func TestSnapshotTakesNoLaterCycle(t *testing.T) {
	w, r := heapMirror(t, 4*BlockLen, 0, 0, Options{})
	addN(t, w, 4*BlockLen, false)
	for cycle := range int64(2) {
		w.BeginCycle()
		for i := range 4 {
			publishAt(w, i, uint64(cycle), 1+cycle)
		}
		w.EndCycle(1 + cycle)
	}
	list, err := r.v.segments()
	if err != nil {
		t.Fatal(err)
	}
	atomic.StoreUint64(&r.v.hdr.cycleBegun, 1) // as it was when the snapshot began
	defer atomic.StoreUint64(&r.v.hdr.cycleBegun, 2)
	var c scratch
	dst, label := make([]copyMem, 4), Label{MinCycle: ^uint64(0), Oldest: 1<<63 - 1}
	if err := r.v.copyBlocks(dst, &c, list[0], 1, nil, &label); err != nil || label.MaxCycle != 1 || label.Sampled != 4 {
		t.Errorf("a snapshot of cycle 1 has the label %+v, %v", label, err)
	}
}
