//go:build race || !amd64

package shm

import "sync/atomic"

// loadValue reads the three words before any later load: on arm64 each load is an LDAR, which no later access overtakes.
func loadValue(p *Value) Value {
	return Value{
		Packets:   atomic.LoadUint64(&p.Packets),
		Bytes:     atomic.LoadUint64(&p.Bytes),
		SampledAt: atomic.LoadInt64(&p.SampledAt),
	}
}
