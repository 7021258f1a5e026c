package backend

import "sync/atomic"

// LastSample is the last sample of a slot. One goroutine at a time may store, and any number may load. None of them waits:
// a store fills the copy not in use by readers, and then switches them to it. A load overtaken by a store tries again,
// because the next store may already write to its copy.
type LastSample struct {
	turn atomic.Uint32
	copy [2]struct {
		packets, bytes atomic.Uint64
		at             atomic.Int64
	}
}

// Store publishes a value read at at, in ns on the clock of shm.Now.
func (s *LastSample) Store(p Pair, at int64) {
	next := s.turn.Load() + 1
	v := &s.copy[next&1]
	v.packets.Store(p.Packets)
	v.bytes.Store(p.Bytes)
	v.at.Store(at)
	s.turn.Store(next)
}

// Load returns the last value and its time. Before the first Store the time is 0.
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
