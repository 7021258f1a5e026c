package shm

import (
	"fmt"
	"runtime"
	"sync/atomic"
)

// carry copies everything that old holds into v, which is fresh and at least as
// large in every capacity. Indices of latency counters move up with the number
// of block counters, in the catalogue and in the history.
func (v *view) carry(old *view) {
	h, o := v.hdr, old.hdr
	h.generation, h.takeovers = o.generation, o.takeovers
	h.cycleBegun, h.cycleDone, h.cycleDoneAt = o.cycleBegun, o.cycleDone, o.cycleDoneAt
	h.catalogueChanges, h.refused = o.catalogueChanges, o.refused
	h.blocksHigh, h.recordsHigh = o.blocksHigh, o.recordsHigh
	h.deviceGeneration, h.deviceLength = o.deviceGeneration, o.deviceLength

	from, to := old.counters(), v.counters()
	// What was never used is zero on both sides: its pages need not be touched.
	blocks, records := old.high()
	copy(v.entries, old.entries[:blocks*BlockLen])
	copy(v.entries[to:], old.entries[from:int(from)+records])
	copy(v.blocks, old.blocks[:blocks])
	copy(v.records, old.records[:records])

	size, oldSize := uint64(len(v.history)), uint64(len(old.history))
	tail := o.historyTail
	h.historyIntent, h.historyTail = tail, tail
	// What the old ring may have been overwriting when its writer was killed is
	// the record after its tail: it stands in the place of the oldest, which
	// readers of the larger ring must not ask for.
	first := max(o.historyBase, tail-min(tail, oldSize))
	if o.historyIntent > tail && tail >= oldSize && oldSize > 0 {
		first = max(first, tail-oldSize+1)
	}
	h.historyBase = first
	for n := first; n < tail; n++ {
		rec := old.history[n&(oldSize-1)]
		if rec.index >= from {
			rec.index += to - from
		}
		v.history[n&(size-1)] = rec
	}
}

// supersede tells the readers of v that the file of next takes its name.
func (v *view) supersede(next *view) {
	atomic.StoreUint64(&v.hdr.successor, atomic.LoadUint64(&next.hdr.generation))
	atomic.StoreInt64(&v.hdr.supersededAt, Now())
	atomic.StoreUint32(&v.hdr.state, uint32(Superseded))
}

// reinstate takes supersede back: the file of next did not get the name.
func (v *view) reinstate(state State) {
	atomic.StoreUint64(&v.hdr.successor, 0)
	atomic.StoreInt64(&v.hdr.supersededAt, 0)
	atomic.StoreUint32(&v.hdr.state, uint32(state))
}

// Growth says what became of a writer's handles when its mirror grew.
type Growth struct{ from, to uint32 }

// Handle answers what h is now: handles of block counters stay, those of
// latency counters move up behind the block counters that came.
func (g Growth) Handle(h Handle) Handle {
	if h.Index >= g.from {
		h.Index += g.to - g.from
	}
	return h
}

// larger answers what a mirror with those capacities needs; nothing shrinks.
func (w *Writer) larger(counters, latency int) (have, want geometry, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return have, want, ErrClosed
	}
	have = w.v.geometry()
	if want, err = plan(counters, latency, 0); err != nil {
		return have, want, fmt.Errorf("%s: growing mirror: %w", w.path, err)
	}
	return have, have.union(want), nil
}

// moveTo makes the writer go on in v, which is formatted and has no name yet.
// name gives it the one that the present file has; when it fails, nothing has
// changed. The writer is locked.
func (w *Writer) moveTo(m *mapping, v *view, generation uint64, name func() error) (Growth, error) {
	old, was := w.v, w.m
	defer runtime.KeepAlive(was)
	g := Growth{from: old.counters(), to: v.counters()}
	v.carry(old)
	w.step("create-carried")
	h, o := v.hdr, old.hdr
	h.generation, h.state = generation, o.state
	h.started, h.startedWall, h.heartbeat = o.started, o.startedWall, o.heartbeat
	h.heartbeatPeriod, h.coolDown = o.heartbeatPeriod, o.coolDown
	h.countersUsed, h.recordsUsed = o.countersUsed, o.recordsUsed
	h.catalogueChanges++
	v.ready()
	w.step("create-ready")
	state := State(o.state)
	old.supersede(v) // before the rename: see createFile
	w.step("create-superseded")
	if err := name(); err != nil {
		old.reinstate(state)
		return Growth{}, err
	}
	w.step("create-renamed")
	w.waker.serve(generation)
	w.m, w.v = m, v
	w.tables.move(g, v)
	w.moveDevice(g)
	return g, nil
}

// move makes the tables be of v, into which a mirror grew: what adopt would
// make of it, in less time.
func (t *tables) move(g Growth, v *view) {
	t.live = append(make([]uint64, 0, len(v.blocks)), t.live...)[:len(v.blocks)]
	t.liveRecords = append(make([]bool, 0, len(v.records)), t.liveRecords...)[:len(v.records)]
	for i, live := range t.liveRecords {
		if live {
			t.names[getString(v.entries[g.to+uint32(i)].name[:])] = g.to + uint32(i)
		}
	}
	shift := g.to - g.from
	records := &t.free[1]
	records.next += shift
	for i := range records.cooling {
		records.cooling[i].index += shift
	}
	t.free[0].end, records.end = g.to, g.to+uint32(len(v.records))
}
