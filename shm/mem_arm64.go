//go:build arm64 && !race

package shm

import "sync/atomic"

// storeFence orders every store before it before every store after it (DMB ISHST).
func storeFence()

// loadFence orders every load before it before every load and store after it (DMB ISHLD).
func loadFence()

// loadValue reads the three words before any load that follows it: LDAR holds back the loads and stores
// after it.
func loadValue(p *Value) Value {
	return Value{
		Packets:   atomic.LoadUint64(&p.Packets),
		Bytes:     atomic.LoadUint64(&p.Bytes),
		SampledAt: atomic.LoadInt64(&p.SampledAt),
	}
}
