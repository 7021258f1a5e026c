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
