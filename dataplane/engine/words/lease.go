package words

import (
	"errors"
	"math"
	"sync/atomic"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// lease is the words of one program.
type lease struct {
	slot  *shm.DeviceSlot
	asked uint64       // the limit that the program has named
	limit uint64       // the largest number if a word was above asked
	from  backend.Pair // the total when the words were named in the mirror
	// backwards: the program has written a smaller word, or one above limit. The counter keeps its total until Keep
	// continues it from there.
	backwards atomic.Bool
}

// total returns the total that the words show. It is never below was and never below l.from. An error says that the
// program has spoilt the words.
func (l *lease) total(was backend.Pair) (backend.Pair, error) {
	was = backend.Pair{Packets: max(was.Packets, l.from.Packets), Bytes: max(was.Bytes, l.from.Bytes)}
	comp, errs, err := l.slot.Rebase()
	if errors.Is(err, shm.ErrFormat) {
		l.backwards.Store(true)
	}
	if err != nil || l.backwards.Load() {
		return was, errors.Join(err, errBackwards)
	}
	// A device counts less than half of the range between two cycles, so a longer way is a step back.
	if comp-was.Packets > l.limit/2 || comp < was.Packets || errs-was.Bytes > l.limit/2 || errs < was.Bytes {
		l.backwards.Store(true)
		return was, errBackwards
	}
	return backend.Pair{Packets: comp, Bytes: errs}, nil
}

var errBackwards = errors.New("a word went backwards, or above its limit")

// withdraw takes the words away from the counter, whose total stays. It counts a discontinuity and returns true if
// operations may have ended uncounted: the program has spoilt the words, or did not give them back. It is called with mu
// held.
func (s *Set) withdraw(r *reservation) (uncounted bool) {
	if l := r.lease.Load(); l != nil {
		err := s.keepTotal(r, l)
		l.slot.Free()
		uncounted = err != nil || r.state == dataplane.WordsAbandoned
		if uncounted {
			r.continuity.Discontinuities++
		}
	}
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
	return uncounted
}

// keepTotal ends a lease, and keeps the last total of its words. An error says that the program has spoilt them. It is
// called with mu held.
func (s *Set) keepTotal(r *reservation, l *lease) error {
	r.sampling.Lock()
	defer r.sampling.Unlock()

	was, at := r.polled.Load()
	total, err := l.total(was)
	if err == nil {
		at = shm.Now()
	}
	if s.totalRead != nil {
		s.totalRead(r)
	}
	if at != 0 {
		r.last.Store(total, at)
	}
	r.lease.Store(nil)
	return err
}

// continueTotal continues the total of words that went backwards or above their limit, with a discontinuity. It is called with mu
// held.
func (s *Set) continueTotal(r *reservation) {
	l := r.lease.Load()
	if l == nil || !l.backwards.Load() {
		return
	}

	was, _ := r.polled.Load()
	from, _ := l.total(was)
	limit := l.asked
	err := s.opts.Mirror.SetDevice(r.handle, l.slot, from.Packets, from.Bytes, limit)
	if errors.Is(err, shm.ErrInvalid) { // a word is above it, and counts up to the largest number
		limit = math.MaxUint64
		err = s.opts.Mirror.SetDevice(r.handle, l.slot, from.Packets, from.Bytes, limit)
	}
	if err != nil {
		// The next Keep tries again.
		s.opts.Logger.Debug("reserved words went backwards, and their counter stands still", "counter", r.name, "err", err)
		return
	}

	r.backwards = true
	r.continuity.Discontinuities++
	r.lease.Store(&lease{
		slot:  l.slot,
		asked: l.asked,
		limit: limit,
		from:  from,
	})
	s.announce(r, "the program has written a smaller number into the words, or one above their limit", true)
}
