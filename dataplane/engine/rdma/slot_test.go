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
		{pair(2, 200), pair(7, 700), true}, // reset: 5 packets before, 2 since
		{pair(3, 300), pair(8, 800), false},
		{pair(3, 100), pair(11, 900), true},
	} {
		if got, reset := m.total(c.raw); got != c.want || reset != c.reset {
			t.Errorf("%d: total %+v, reset %v; want %+v, %v", i, got, reset, c.want, c.reset)
		}
	}
}

// newFakeBulk returns a bulk of a fake device.
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

// A rule that is gone may have counted packets which the hardware adds to the slot a little later. If the next flow took the slot
// at once, such a packet would come behind its baseline. So the bulk must be read again first.
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
	raw.values[2] = backend.Pair{Packets: 9, Bytes: 900} // added late
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

// The reader only takes the pool's lock, so it may sample a slot between take and setBaseline. Such a sample has the count of the
// earlier flow and must be dropped, and so must a reset that it shows.
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

// When a device resets a counter, the total goes on, and the reset is counted and signaled.
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
