package backend

import "sync/atomic"

// LastSample is the last sample of a slot and its time. One goroutine stores, any number load, and no call waits
// for another. A store fills the copy that readers do not use, then switches them to it. A load during which two
// stores ended tries again.
type LastSample struct {
	turn atomic.Uint32
	copy [2]struct {
		packets, bytes atomic.Uint64
		at             atomic.Int64
	}
}

// Store publishes the value of the slot at the time at, in ns on the clock of shm.Now.
func (s *LastSample) Store(p Pair, at int64) {
	next := s.turn.Load() + 1
	v := &s.copy[next&1]
	v.packets.Store(p.Packets)
	v.bytes.Store(p.Bytes)
	v.at.Store(at)
	s.turn.Store(next)
}

// Load returns the value and its time, or 0 as the time before the first Store.
func (s *LastSample) Load() (p Pair, at int64) {
	for {
		turn := s.turn.Load()
		v := &s.copy[turn&1]
		p, at = Pair{Packets: v.packets.Load(), Bytes: v.bytes.Load()}, v.at.Load()
		if s.turn.Load() == turn {
			return p, at
		}
	}
}
