package backend

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A load must return one store as a whole, and never an older one than the load before.
func TestALoadReturnsOneWholeStore(t *testing.T) {
	var c LastSample
	if p, at := c.Load(); p != (Pair{}) || at != 0 {
		t.Errorf("before the first store: %+v of %d", p, at)
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	const readers = 2
	var loaded atomic.Int32 // readers that have loaded a store
	for range readers {
		wg.Go(func() {
			var last int64
			for {
				p, at := c.Load()
				if p.Packets != uint64(at) || p.Bytes != 64*uint64(at) || at < last {
					t.Errorf("loaded %+v of %d after %d", p, at, last)
					return
				}
				if last == 0 && at != 0 {
					loaded.Add(1)
				}
				last = at
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	n := int64(0)
	for start := time.Now(); time.Since(start) < 200*time.Millisecond || loaded.Load() < readers && !t.Failed(); {
		n++
		c.Store(Pair{Packets: uint64(n), Bytes: 64 * uint64(n)}, n)
	}
	close(done)
	wg.Wait()
}
