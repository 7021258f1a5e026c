//go:build race || !amd64

package shm

import "sync/atomic"

// Load returns the counter's value: packets, bytes and sampled-at of one instant. ErrGone: the counter was removed.
// ErrStale: the mirror was given up. ErrBusy: try again.
//
// Load reads the three words first and the sequence word afterwards. If that still is c.last, the writer has published
// nothing since the copy at c.cur became current. It fills the other copy first, so nobody wrote to this one meanwhile.
//
// Plain loads would not do on arm64, where the load of the sequence word could overtake them. Each load here is a load-acquire
// instead, and nothing overtakes that (barrier quick-fence).
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

// loadValue reads the three words before any later load: on arm64 each load is an LDAR, which no later access overtakes.
func loadValue(p *Value) Value {
	return Value{
		Packets:   atomic.LoadUint64(&p.Packets),
		Bytes:     atomic.LoadUint64(&p.Bytes),
		SampledAt: atomic.LoadInt64(&p.SampledAt),
	}
}
