package engine

import (
	"sync"
	"testing"
	"time"
)

func TestMeter(t *testing.T) {
	var m meter
	m.begin(Pair{Packets: 10, Bytes: 1000})
	pair := func(packets, bytes uint64) Pair { return Pair{Packets: packets, Bytes: bytes} }
	for i, c := range []struct {
		raw, want Pair
		reset     bool
	}{
		{pair(10, 1000), Pair{}, false},
		{pair(15, 1500), pair(5, 500), false},
		{pair(2, 200), pair(7, 700), true}, // the device lost its counters: what it had shown stays
		{pair(3, 300), pair(8, 800), false},
		{pair(3, 100), pair(11, 900), true},
	} {
		if got, reset := m.total(c.raw); got != c.want || reset != c.reset {
			t.Errorf("%d: total %+v, reset %v; want %+v, %v", i, got, reset, c.want, c.reset)
		}
	}
}

// A load sees one store, whole, and never one that is older than what it saw before.
func TestCellIsNeverTorn(t *testing.T) {
	var c cell
	if p, at := c.load(); p != (Pair{}) || at != 0 {
		t.Errorf("an empty cell holds %+v of %d", p, at)
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			var last int64
			for {
				p, at := c.load()
				if p.Packets != uint64(at) || p.Bytes != 64*uint64(at) || at < last {
					t.Errorf("loaded %+v of %d after %d", p, at, last)
					return
				}
				last = at
				select {
				case <-done:
					if last == 0 {
						t.Error("nothing was loaded")
					}
					return
				default:
				}
			}
		})
	}
	n := int64(0)
	for start := time.Now(); time.Since(start) < 200*time.Millisecond; {
		n++
		c.store(Pair{Packets: uint64(n), Bytes: 64 * uint64(n)}, n)
	}
	close(done)
	wg.Wait()
}

// A slot of a bulk that was in use is given to the next flow only when the bulk was read after its last
// rule had gone: until then a packet of the old flow may still be counted into it, behind the baseline.
func TestASlotIsReusedOnlyAfterItWasReadAgain(t *testing.T) {
	h := newFakeHost("eth0")
	n, err := h.open(h.list[0])
	if err != nil {
		t.Fatal(err)
	}
	raw, err := n.newBank()
	if err != nil {
		t.Fatal(err)
	}
	var now int64
	clock := func() int64 { now++; return now }
	b := newHWBank(raw)
	var cells [5]cell
	for i := range b.slots() {
		if got, ok := b.take(&cells[i]); !ok || got != i {
			t.Fatalf("slot %d, %v; want %d", got, ok, i)
		}
	}
	if _, err := b.sample(clock); err != nil {
		t.Fatal(err)
	}
	b.free(2, clock())
	if i, ok := b.take(&cells[4]); ok {
		t.Errorf("slot %d was given away before it was read again", i)
	}
	raw.(*fakeBank).values[2] = Pair{Packets: 9, Bytes: 900} // counted late
	if _, err := b.sample(clock); err != nil {
		t.Fatal(err)
	}
	if i, ok := b.take(&cells[4]); !ok || i != 2 {
		t.Fatalf("slot %d, %v; want 2", i, ok)
	}
	if err := b.begin([]int{2}); err != nil {
		t.Fatal(err)
	}
	raw.(*fakeBank).values[2] = Pair{Packets: 10, Bytes: 960}
	if _, err := b.sample(clock); err != nil {
		t.Fatal(err)
	}
	if got, _ := cells[4].load(); got != (Pair{Packets: 1, Bytes: 60}) {
		t.Errorf("the next flow has counted %+v, want its own packet", got)
	}
	if got, _ := cells[2].load(); got != (Pair{}) {
		t.Errorf("the flow before shows %+v after its end", got)
	}
}
