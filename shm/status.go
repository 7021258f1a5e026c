package shm

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Status is what the header says about the writer and the mirror.
type Status struct {
	State      State
	File       uint64 // random: names this file
	Replaced   bool   // the writer gave this file up for ever (ErrStale): open the mirror again
	Generation uint64 // random: names this writer
	Takeovers  uint64
	Started    time.Time
	// Alive is true if the state is Boot or Run, the last heartbeat is at most two periods old, and the file is not replaced.
	Alive           bool
	Age             time.Duration // of the last heartbeat
	HeartbeatPeriod time.Duration

	Cycle            uint64        // the last completed poll cycle
	CycleAge         time.Duration // since its end; 0 before the first cycle
	PollPeriod       time.Duration // the current time from one cycle to the next; 0: none, or unknown
	CatalogueChanges uint64        // changes whenever an entry is added, removed or changed

	Counters, CountersUsed int // Counters: the capacity of the file before it grows again
	Records, RecordsUsed   int
	CounterLimit           int // by Options; 0: no limit, -1: no counters at all
	RecordLimit            int
	History                int
	HistoryTail            uint64 // records ever written
	Refused                uint64 // counters refused because the mirror was full
}

// Status reads the header, and the clock once.
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

// tooOld reports whether a heartbeat of that age means a dead writer, because it is older than two periods. tooOld halves the
// age instead of doubling the period, which comes from the file and could overflow.
func tooOld(age, period time.Duration) bool { return uint64(age)/2 > uint64(period) }

// age returns now - at, or 0 if that is negative: the other process may have read the clock after this one.
func age(now, at int64) time.Duration { return time.Duration(max(0, now-at)) }
