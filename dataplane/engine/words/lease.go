package words

import (
	"errors"
	"math"
	"sync/atomic"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// lease is what one program has: the words of a counter, with a base and a limit.
type lease struct {
	slot  *shm.DeviceSlot
	asked uint64       // the limit given by the program
	limit uint64       // the same, or the largest uint64 if a word was above it
	from  backend.Pair // the total when the mirror began to show these words

	// backwards is true once the program has written a smaller word, or one above limit. The counter then keeps its total
	// until Keep continues it from there.
	backwards atomic.Bool
}

// total returns the total according to the words, which is at least was and at least l.from. errBackwards: the program has
// written nonsense, and the total is the last good one.
func (l *lease) total(was backend.Pair) (backend.Pair, error) {
	was = backend.Pair{Packets: max(was.Packets, l.from.Packets), Bytes: max(was.Bytes, l.from.Bytes)}
	comp, errs, err := l.slot.Rebase()
	if errors.Is(err, shm.ErrFormat) {
		l.backwards.Store(true)
	}
	if err != nil || l.backwards.Load() {
		return was, errors.Join(err, errBackwards)
	}
	// A program must count less than half of the limit between two cycles. If a word seems to have moved further, it went
	// backwards.
	if comp-was.Packets > l.limit/2 || comp < was.Packets || errs-was.Bytes > l.limit/2 || errs < was.Bytes {
		l.backwards.Store(true)
		return was, errBackwards
	}
	return backend.Pair{Packets: comp, Bytes: errs}, nil
}

var errBackwards = errors.New("a word went backwards, or above its limit")

// withdraw takes the words away from the counter, which keeps its total. If operations may be uncounted, because the program
// wrote nonsense or did not return the words, withdraw counts a discontinuity and returns true. The caller holds mu.
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

// keepTotal ends a lease, and stores the last total of its words in r.last. It locks r.sampling, so that no poll publishes more
// than that. An error means that the program wrote nonsense. The caller holds mu.
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

// continueTotal makes a total continue after its words went backwards or above their limit, and counts a discontinuity. The
// caller holds mu.
func (s *Set) continueTotal(r *reservation) {
	l := r.lease.Load()
	if l == nil || !l.backwards.Load() {
		return
	}

	was, _ := r.polled.Load()
	from, _ := l.total(was)
	limit := l.asked
	err := s.opts.Mirror.SetDevice(r.handle, l.slot, from.Packets, from.Bytes, limit)
	if errors.Is(err, shm.ErrInvalid) { // a word is above the limit, so let the words use the full range
		limit = math.MaxUint64
		err = s.opts.Mirror.SetDevice(r.handle, l.slot, from.Packets, from.Bytes, limit)
	}
	if err != nil {
		// Not an error yet: the next Keep tries again.
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
