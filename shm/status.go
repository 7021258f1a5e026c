package shm

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Status holds the header's words about the writer and the mirror.
type Status struct {
	State      State
	File       uint64 // random: names this file
	Replaced   bool   // the file was given up for ever (ErrStale): open it again
	Generation uint64 // random: names this writer
	Takeovers  uint64
	Started    time.Time
	// Alive: the state is Boot or Run, the last heartbeat no older than two periods, and the file not replaced.
	Alive           bool
	Age             time.Duration // of the last heartbeat
	HeartbeatPeriod time.Duration

	Cycle            uint64        // the poll cycle that was completed last
	CycleAge         time.Duration // since then; 0 before the first cycle
	PollPeriod       time.Duration // from one cycle to the next, at present; 0: no fixed time, or not told
	CatalogueChanges uint64        // moves whenever an entry is added, removed or changed

	Counters, CountersUsed int // Counters: how many the file holds before it grows again
	Records, RecordsUsed   int
	CounterLimit           int // by Options; 0: no limit, -1: no counters at all
	RecordLimit            int
	History                int
	HistoryTail            uint64 // records ever written
	Refused                uint64 // counters refused because the mirror was full
}

// Status reads the header. It costs one look at the clock.
func (r *Reader) Status() Status {
	var s Status
	_ = Guard(func() error {
		s = r.v.status(Now())
		return nil
	})
	runtime.KeepAlive(r)
	return s
}

func (v *view) status(now int64) Status {
	h := v.hdr
	s := Status{
		File:             v.fixed.file,
		Replaced:         v.stale() != nil,
		State:            State(atomic.LoadUint32(&h.state)),
		Generation:       atomic.LoadUint64(&h.generation),
		Takeovers:        atomic.LoadUint64(&h.takeovers),
		Started:          time.Unix(0, atomic.LoadInt64(&h.startedWall)),
		Age:              age(now, atomic.LoadInt64(&h.heartbeat)),
		HeartbeatPeriod:  time.Duration(atomic.LoadInt64(&h.heartbeatPeriod)),
		Cycle:            atomic.LoadUint64(&h.cycleDone),
		PollPeriod:       time.Duration(max(0, atomic.LoadInt64(&h.pollPeriod))),
		CatalogueChanges: atomic.LoadUint64(&h.catalogueChanges),
		CountersUsed:     int(atomic.LoadUint32(&h.countersUsed)),
		RecordsUsed:      int(atomic.LoadUint32(&h.recordsUsed)),
		CounterLimit:     limitOf(atomic.LoadUint32(&h.counterLimit)),
		RecordLimit:      limitOf(atomic.LoadUint32(&h.recordLimit)),
		History:          len(v.history),
		HistoryTail:      atomic.LoadUint64(&h.historyTail),
		Refused:          atomic.LoadUint64(&h.refused),
	}
	s.Counters, s.Records = v.capacity()
	if doneAt := atomic.LoadInt64(&h.cycleDoneAt); doneAt != 0 {
		s.CycleAge = age(now, doneAt)
	}

	running := s.State == Boot || s.State == Run
	s.Alive = running && !tooOld(s.Age, s.HeartbeatPeriod) && !s.Replaced
	return s
}

// tooOld reports whether a heartbeat of that age means a dead writer: it is older than two periods. The age is
// halved because twice the period may overflow: the period comes from the file.
func tooOld(age, period time.Duration) bool { return uint64(age)/2 > uint64(period) }

// age is now - at, but never below 0: two processes may read one clock in the other order.
func age(now, at int64) time.Duration { return time.Duration(max(0, now-at)) }
