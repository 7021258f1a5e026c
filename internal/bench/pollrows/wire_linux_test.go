package pollrows

import (
	"testing"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// The program of the wire rows counts no packet before it is told to, and then each on the counter whose turn it is.
func TestWireCountsWhatIsSaid(t *testing.T) {
	need.BPF(t)
	open := new(bench.Closers)
	defer func() {
		if err := open.Close(); err != nil {
			t.Error(err)
		}
	}()
	rules, counters, _, err := liveCounters(open, wireSlots)
	if err != nil {
		t.Fatal(err)
	}
	var ids []uint32
	for _, c := range counters {
		ids = append(ids, c.id)
	}
	w, err := newWire(open, rules, ids)
	if err != nil {
		t.Fatal(err)
	}
	if verdict, err := w.program.Run(&w.options); err != nil || verdict != 0 || w.counted.Load() != 0 {
		t.Errorf("nothing was said: verdict %d, %v, %d packets were counted", verdict, err, w.counted.Load())
	}
	for _, n := range []uint64{1, 2, 9, 100} {
		w.said.Store(n)
		before := w.at.Load()
		if err := w.count(n); err != nil {
			t.Fatal(err)
		}
		packets, bytes, err := counters[n%wireSlots].live.Load()
		if err != nil || packets != w.on(n) || bytes != 64*packets {
			t.Errorf("packet %d: %d packets and %d bytes, %v; want %d packets of 64 bytes", n, packets, bytes, err, w.on(n))
		}
		if w.at.Load() <= before {
			t.Errorf("packet %d was counted at %d, the one before at %d", n, w.at.Load(), before)
		}
	}
}
