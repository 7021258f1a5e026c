package shm

import "testing"

// A record has only the low half of its cycle's number. Without restamping, a reader would take a record published 2^32
// cycles ago for one of the current cycle. Restamping must not change the value.
func TestARecordOutlivesTheLowHalfOfItsCycle(t *testing.T) {
	w, r := heapMirror(t, 64, 1, 0, Options{})
	old, fresh := mustAdd(t, w, Entry{Name: "old", Latency: true}), mustAdd(t, w, Entry{Name: "fresh"})
	const begun = 5
	for range begun {
		w.BeginCycle()
		w.PublishRecord(old.Index, Value{Packets: 7, Bytes: 70, SampledAt: 1})
		w.EndCycle(1)
	}
	for next := uint64(restamp); next <= 1<<32; next += restamp { // the cycles between publish nothing
		w.cycle = next - 1
		w.BeginCycle()
		w.EndCycle(int64(next))
	}
	w.cycle = 1<<32 + begun - 1
	publishOne(w, fresh, Value{Packets: 1, Bytes: 10, SampledAt: 1})
	var s Snapshot
	if err := r.SnapshotOf(&s, []Handle{old, fresh}); err != nil {
		t.Fatal(err)
	}
	if s.SameCycle || s.MaxCycle != 1<<32+begun || s.MinCycle >= s.MaxCycle {
		t.Errorf("the record is of cycle %d, the other of %d, same: %v", s.MinCycle, s.MaxCycle, s.SameCycle)
	}
	if s.List[0] != (Value{Packets: 7, Bytes: 70, SampledAt: 1}) {
		t.Errorf("the record shows %+v", s.List[0])
	}
}
