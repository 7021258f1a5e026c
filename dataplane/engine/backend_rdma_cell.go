package engine

import "sync/atomic"

// cell is the last sample of one counter of one device. One goroutine stores, any
// number load, and none waits for another: a store fills the copy that nobody is sent to,
// then turns the number that sends them. A load that two stores overtake sees the number
// changed and looks again.
type cell struct {
	turn atomic.Uint32
	news atomic.Uint64 // how often the counter has begun anew by itself
	copy [2]struct {
		packets, bytes atomic.Uint64
		at             atomic.Int64
	}
}

// store publishes what the counter had counted at the time at, on shm.Now's clock.
func (c *cell) store(p Pair, at int64) {
	next := c.turn.Load() + 1
	v := &c.copy[next&1]
	v.packets.Store(p.Packets)
	v.bytes.Store(p.Bytes)
	v.at.Store(at)
	c.turn.Store(next)
}

// load answers the pair and its time; 0 when there was no sample yet.
func (c *cell) load() (p Pair, at int64) {
	for {
		turn := c.turn.Load()
		v := &c.copy[turn&1]
		p, at = Pair{Packets: v.packets.Load(), Bytes: v.bytes.Load()}, v.at.Load()
		if c.turn.Load() == turn {
			return p, at
		}
	}
}

// meter turns what a hardware counter shows into what a flow has counted. A counter
// of a bulk shows what its earlier occupants counted too, and is never reset: that
// would be a command, and lose what comes in between. So its first value is a baseline.
type meter struct {
	base, last Pair // of the hardware counter
	before     Pair // counted before it began anew
}

// begin makes raw the value from which on the flow counts.
func (m *meter) begin(raw Pair) { *m = meter{base: raw, last: raw} }

// total is the flow's count when the counter shows raw. One that shows less than before was
// reset, and what it had shown stays counted; reset says so.
func (m *meter) total(raw Pair) (p Pair, reset bool) {
	if raw.Packets < m.last.Packets || raw.Bytes < m.last.Bytes {
		m.before = add(m.before, sub(m.last, m.base))
		m.base, reset = Pair{}, true
	}
	m.last = raw
	return add(m.before, sub(raw, m.base)), reset
}
