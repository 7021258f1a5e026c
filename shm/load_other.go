//go:build race || !amd64

package shm

import "sync/atomic"

// Load returns the counter's value: packets, bytes and sampled-at of one instant. ErrGone: the counter was removed.
// ErrStale: the mirror was given up. ErrBusy: try again.
//
// The three words are read, each with acquire, before the sequence word (barrier quick-fence). If that is still last,
// nothing was published since, so that the copy they came from is the current one, which no writer fills.
func (c *HandleCounter) Load() (Value, error) {
	v := Value{
		Packets:   atomic.LoadUint64(&c.cur.Packets),
		Bytes:     atomic.LoadUint64(&c.cur.Bytes),
		SampledAt: atomic.LoadInt64(&c.cur.SampledAt),
	}
	if atomic.LoadUint64(c.seq) != c.last {
		return c.load()
	}
	return v, nil
}

// loadValue reads the three words before any load that follows it: on arm64 each load is an LDAR, which holds back the loads
// and stores after it.
func loadValue(p *Value) Value {
	return Value{
		Packets:   atomic.LoadUint64(&p.Packets),
		Bytes:     atomic.LoadUint64(&p.Bytes),
		SampledAt: atomic.LoadInt64(&p.SampledAt),
	}
}
