package engine

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/shm"
)

const (
	// spins is how many empty looks at the completion queue follow one another while a caller
	// waits; then the pause between two grows from pauseMin to pauseBusy. Nobody waits:
	// it grows to the period of the poller, which is as often as anybody sees what is new, within
	// the bounds of pauseIdleLeast and pauseIdleMost. What arrives meanwhile has the receives that are posted.
	spins     = 64
	pauseMin  = 20 * time.Microsecond
	pauseBusy = 200 * time.Microsecond
	// drainRounds is how many batches of completions are taken off before anything else is done.
	drainRounds = 32
	// flushBound is how long what is outstanding has to end with errors.
	flushBound = 5 * time.Second

	pauseIdleLeast, pauseIdleMost = time.Millisecond, 10 * time.Millisecond
)

// fault is why completions came with errors: what the first of them said.
type fault struct {
	op     int
	status ibv.WCStatus // WCSuccess: there is none
}

func (f fault) String() string {
	if f.status == ibv.WCSuccess {
		return "no completion says why"
	}
	return fmt.Sprintf("%s ended with: %v", dataplane.Operations()[f.op], f.status)
}

// run owns the queue pair until stop: it drains, posts, and does what it is asked to.
func (q *queuePair) run() {
	defer close(q.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	if q.end != nil {
		q.attend()
	}
	for idle := 0; ; {
		moved := q.turn()
		if moved {
			idle = 0
		} else {
			idle++
		}
		pause := q.pause(idle)
		if pause == 0 {
			runtime.Gosched()
		}
		timer.Reset(pause)
		select {
		case <-q.stop:
			q.last()
			q.job.fail(dataplane.ErrClosed)
			q.finish()
			return
		case do := <-q.requests:
			do()
			idle = 0
		case o := <-q.happened:
			q.heed(o)
		case <-timer.C:
		}
	}
}

// pause is how long to wait after so many looks that found nothing.
func (q *queuePair) pause(idle int) time.Duration {
	switch {
	case q.end == nil:
		return backend.ReturnPeriod
	case idle == 0 || q.job != nil && idle < spins:
		return 0
	case q.job != nil:
		return min(pauseMin<<min(idle-spins, 8), pauseBusy)
	}
	return min(pauseMin<<min(idle, 16), q.set.idle)
}

// turn looks once at what has completed and posts what there is room for. It makes the
// queue pair again when its device is back.
func (q *queuePair) turn() (moved bool) {
	if q.end == nil {
		return q.remake()
	}
	n, err := q.drain()
	if err != nil {
		q.lose(err)
		return true
	}
	return q.postMore() || n > 0
}

// drain takes what has completed off the completion queue, counts it, and posts the receives
// anew that were used up. One that fills as fast as that is left after a while, for who asks
// for something else.
func (q *queuePair) drain() (n int, err error) {
	e := q.end
	for range drainRounds {
		at := shm.Now()
		k, err := e.cq.Poll(q.wc[:])
		if err != nil {
			return n, err
		}
		n += k
		received, failed := q.settleUp(q.wc[:k])
		if err := q.tally(q.wc[:k], at, false); err != nil {
			return n, err
		}
		if failed {
			if err := q.examine(); err != nil {
				return n, err
			}
		}
		if received > 0 && e.state != ibv.QPSErr {
			if err := q.receive(e, received); err != nil {
				return n, err
			}
		}
		if k < len(q.wc) {
			break
		}
	}
	return n, nil
}

// settleUp takes note of what is not outstanding any more.
func (q *queuePair) settleUp(done []ibv.WC) (received int, failed bool) {
	e := q.end
	sent := int64(0)
	for i := range done {
		c := &done[i]
		op, ok := opOf(c.WRID), c.Status == ibv.WCSuccess
		if op == opRecv {
			e.posted--
			if ok {
				received++
			}
		} else {
			sent++
			q.job.settle(batchOf(c.WRID), ok)
		}
		if !ok {
			failed = true
			if e.fault.status == ibv.WCSuccess {
				e.fault = fault{op, c.Status}
			}
		}
	}
	if sent > 0 {
		q.outstanding.Add(-sent)
	}
	return received, failed
}

// tally has the census count, and shows the totals. A census that cannot go on is replaced
// by ibv_poll_cq: what it had not counted by then is not known. An error is that of a device that
// answers nothing else either.
func (q *queuePair) tally(done []ibv.WC, at int64, last bool) error {
	e := q.end
	fresh, err := e.census.count(done, q.totals, at, last)
	if err != nil && e.mode != sourcePoll {
		if gone := q.examine(); gone != nil {
			return gone
		}
		q.fallBack(err)
	}
	if fresh {
		q.store(at)
	}
	return nil
}

// store shows the totals as they stood at the time at.
func (q *queuePair) store(at int64) {
	for i, t := range q.tallies {
		t.cell.Store(q.totals[i], at)
	}
}

// fallBack has ibv_poll_cq count in place of a census that failed. Operations of the peer
// are counted by nobody then.
func (q *queuePair) fallBack(why error) {
	e := q.end
	e.reject(e.mode, why)
	if err := e.census.leave(); err != nil {
		q.log.Error("taking back the words of a device from the mirror", "err", err)
	}
	for i, t := range q.tallies {
		if slices.ContainsFunc(t.cfg.Operations, dataplane.Operation.Remote) {
			e.polled[i] = q.totals[i] // how much of it is the peer's is not known
		}
	}
	e.failed, e.census = e.census, lateCensus{&q.feeds, e.polled}
	e.mode, e.broken = sourcePoll, why
	q.log.Error("counting completions", "err", why, "source", sourcePoll)
	q.interrupt("ibv_poll_cq counts in its place", false)
	q.show()
}

// examine asks for the state, after completions in error or an event, and tells what it is now.
func (q *queuePair) examine() error {
	e := q.end
	defer q.show()
	a, err := e.qp.Query(ibv.QPAttrState)
	if err != nil {
		return err
	}
	if a.State != e.state {
		e.state = a.State
		if e.state == ibv.QPSErr {
			q.log.Warn("a queue pair went to state ERR", "why", e.fault.String())
		}
	}
	return nil
}

// last counts what has completed by now, before the endpoint is taken down.
func (q *queuePair) last() {
	e := q.end
	if e == nil {
		return
	}
	at := shm.Now()
	for {
		k, err := e.cq.Poll(q.wc[:])
		if err != nil {
			k = 0
		}
		q.settleUp(q.wc[:k])
		// A source that fails now has said what it knew.
		if _, err := e.census.count(q.wc[:k], q.totals, at, true); err != nil {
			q.log.Debug("counting completions to the end", "err", err)
		}
		if k < len(q.wc) {
			break
		}
	}
	// What was taken off completed, though a device may count it later, and is not asked again.
	atLeast(q.totals, e.polled)
	q.store(at)
}
