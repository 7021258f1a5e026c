package rdma

import (
	"testing"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
)

func TestACountGoesOnAfterAReset(t *testing.T) {
	var m slotCount
	m.start(backend.Pair{Packets: 10, Bytes: 1000})
	pair := func(packets, bytes uint64) backend.Pair { return backend.Pair{Packets: packets, Bytes: bytes} }
	for i, c := range []struct {
		raw, want backend.Pair
		reset     bool
	}{
		{pair(10, 1000), backend.Pair{}, false},
		{pair(15, 1500), pair(5, 500), false},
		{pair(2, 200), pair(7, 700), true}, // the device was reset: the count up to then stays
		{pair(3, 300), pair(8, 800), false},
		{pair(3, 100), pair(11, 900), true},
	} {
		if got, reset := m.total(c.raw); got != c.want || reset != c.reset {
			t.Errorf("%d: total %+v, reset %v; want %+v, %v", i, got, reset, c.want, c.reset)
		}
	}
}

// newFakeBulk returns a bulk of a device of a fake host.
func newFakeBulk(t *testing.T) *fakeBulk {
	t.Helper()
	h := newFakeHost("eth0")
	n, err := h.open(h.list[0])
	if err != nil {
		t.Fatal(err)
	}
	raw, err := n.newBulk()
	if err != nil {
		t.Fatal(err)
	}
	return raw.(*fakeBulk)
}

// A slot of a bulk that was in use is given to the next flow only when the bulk was read after its last
// rule had gone: until then a packet of the old flow may still be counted into it, behind the baseline.
func TestASlotIsReusedOnlyAfterItWasReadAgain(t *testing.T) {
	raw := newFakeBulk(t)
	var now int64
	clock := func() int64 { now++; return now }
	b := newPool(raw)
	var samples [5]slotSample
	for i := range b.slots() {
		if got, ok := b.take(&samples[i]); !ok || got != i {
			t.Fatalf("slot %d, %v; want %d", got, ok, i)
		}
	}
	if _, err := b.sample(clock); err != nil {
		t.Fatal(err)
	}
	b.free(2, clock())
	if i, ok := b.take(&samples[4]); ok {
		t.Errorf("slot %d was given away before it was read again", i)
	}
	raw.values[2] = backend.Pair{Packets: 9, Bytes: 900} // counted late
	if _, err := b.sample(clock); err != nil {
		t.Fatal(err)
	}
	if i, ok := b.take(&samples[4]); !ok || i != 2 {
		t.Fatalf("slot %d, %v; want 2", i, ok)
	}
	if err := b.setBaseline([]int{2}); err != nil {
		t.Fatal(err)
	}
	raw.values[2] = backend.Pair{Packets: 10, Bytes: 960}
	if _, err := b.sample(clock); err != nil {
		t.Fatal(err)
	}
	if got, _ := samples[4].Load(); got != (backend.Pair{Packets: 1, Bytes: 60}) {
		t.Errorf("the next flow has counted %+v, want its own packet", got)
	}
	if got, _ := samples[2].Load(); got != (backend.Pair{}) {
		t.Errorf("the flow before shows %+v after its end", got)
	}
}

// The reader needs only the pool's lock: it may sample a slot that has its next flow and not yet its baseline. Such
// samples have the counts of the flow before, and must not stay. A reset that they show is no loss of the next flow.
func TestASampleBeforeTheBaselineIsDropped(t *testing.T) {
	raw := newFakeBulk(t)
	var now int64
	clock := func() int64 { now++; return now }
	b := newPool(raw)
	sample := func() {
		t.Helper()
		if _, err := b.sample(clock); err != nil {
			t.Fatal(err)
		}
	}
	samples := make([]slotSample, b.slots()+1)
	for i := range b.slots() {
		b.take(&samples[i])
	}
	raw.values[2] = backend.Pair{Packets: 9, Bytes: 900}
	b.free(2, clock())
	sample()
	next := &samples[b.slots()]
	if i, ok := b.take(next); !ok || i != 2 {
		t.Fatalf("slot %d, %v; want 2", i, ok)
	}
	sample()
	raw.values[2] = backend.Pair{Packets: 1, Bytes: 60}
	sample()
	if err := b.setBaseline([]int{2}); err != nil {
		t.Fatal(err)
	}
	if n := next.resets.Load(); n != 0 {
		t.Errorf("%d resets of the next flow before its baseline", n)
	}
	if got, at := next.Load(); got != (backend.Pair{}) || at != 0 {
		t.Errorf("before its first sample the next flow shows %+v, sampled at %d", got, at)
	}
	raw.values[2] = backend.Pair{Packets: 2, Bytes: 120}
	sample()
	if got, at := next.Load(); got != (backend.Pair{Packets: 1, Bytes: 60}) || at != now {
		t.Errorf("the next flow shows %+v, sampled at %d; want its own packet at %d", got, at, now)
	}
}

// A counter that a device resets goes on, and the reset is counted and signalled.
func TestAResetOfACounterIsNoted(t *testing.T) {
	h := newFakeHost("v0")
	b := openFake(t, h, "v0")
	f := placedUDP(t, "dns", 53, 0)
	id := mustInstall(t, b, f)[0].ID
	for _, c := range []struct{ shows, total, resets uint64 }{{100, 100, 0}, {3, 103, 1}, {5, 105, 1}} {
		select {
		case <-b.Changed():
		default:
		}
		h.nic(0).set(t, 53, backend.Pair{Packets: c.shows, Bytes: 60 * c.shows})
		sampledAs(t, b, id, backend.Pair{Packets: c.total, Bytes: 60 * c.total})
		if n := b.Resets(f); n != c.resets {
			t.Errorf("%d resets at %d packets, want %d", n, c.total, c.resets)
		}
		if c.shows == 3 {
			changes(t, b)
		}
	}
}
