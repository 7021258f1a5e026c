package queuepair

import (
	"errors"
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
	// While a caller waits for a job, we poll without a pause until spins polls in a row were empty. Then the
	// pause between two polls grows from pauseMin to pauseBusy.
	spins     = 64
	pauseMin  = 20 * time.Microsecond
	pauseBusy = 200 * time.Microsecond

	// Without a job the pause grows to the poller's period, within these limits: counts are not published more
	// often. Messages that arrive during a pause land in the posted receives.
	pauseIdleLeast = time.Millisecond
	pauseIdleMost  = 10 * time.Millisecond

	// drainRounds is the largest number of batches in one drain.
	drainRounds = 32

	// flushBound is the time allowed for outstanding operations to end with errors.
	flushBound = 5 * time.Second
)

// worker owns the verbs objects of a queue pair. Its goroutine polls completions, posts operations, and makes
// the objects again after a loss of the device. No other goroutine may use the fields while it runs.
type worker struct {
	*queuePair
	endpoint *endpoint      // nil while the device is gone
	lost     error          // why the device is gone, or nil
	totals   []backend.Pair // by counter, over all endpoints of this process
	job      *job
	batch    uint64 // the number of the last job
	wc       [wcBatch]ibv.WC
	send     [wrBatch]ibv.SendWR
}

// fault is the first completion in error since the queue pair was connected. It tells the cause: later ones
// only follow from it.
type fault struct {
	op     int
	status ibv.WCStatus // WCSuccess if there was none
}

func (f fault) String() string {
	if f.status == ibv.WCSuccess {
		return "no completion says why"
	}
	return fmt.Sprintf("%s ended with: %v", dataplane.Operations()[f.op], f.status)
}

// run is the worker's goroutine.
func (w *worker) run() {
	defer close(w.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	if w.endpoint != nil {
		w.watchEvents()
	}

	idle := 0 // empty steps in a row
	for {
		if w.step() {
			idle = 0
		} else {
			idle++
		}
		pause := w.pause(idle)
		if pause == 0 {
			runtime.Gosched()
		}

		timer.Reset(pause)
		select {
		case <-w.stop:
			w.countLast()
			w.job.fail(dataplane.ErrClosed)
			w.finishJob()
			return
		case do := <-w.requests:
			do()
			idle = 0
		case ev := <-w.events:
			w.handleEvent(ev)
		case <-timer.C:
		}
	}
}

// pause returns the time to wait after idle empty steps in a row.
func (w *worker) pause(idle int) time.Duration {
	switch {
	case w.endpoint == nil:
		return backend.ReturnPeriod
	case idle == 0 || w.job != nil && idle < spins:
		return 0
	case w.job != nil:
		return min(pauseMin<<min(idle-spins, 8), pauseBusy)
	}
	return min(pauseMin<<min(idle, 16), time.Duration(w.set.idlePause.Load()))
}

// step polls completions and posts operations once. While the device is gone, it tries to make the endpoint
// again instead. It returns false if there was nothing to do.
func (w *worker) step() (progress bool) {
	if w.endpoint == nil {
		return w.remake()
	}
	n, err := w.drain()
	if err != nil {
		w.loseDevice(err)
		return true
	}
	return w.postJob() || n > 0
}

// drain polls completions, counts them, and posts the used receives again. It stops after drainRounds
// batches: a queue that fills as fast as we poll must not delay requests.
func (w *worker) drain() (n int, err error) {
	e := w.endpoint
	for range drainRounds {
		at := shm.Now()
		k, err := w.poll()
		if err != nil {
			return n, err
		}
		n += k
		received, failed := w.endOperations(w.wc[:k])
		if err := w.count(w.wc[:k], at, false); err != nil {
			return n, err
		}

		if failed { // the queue pair may be in ERR now
			if err := w.queryState(); err != nil {
				return n, err
			}
		}
		if received > 0 && e.state != ibv.QPSErr {
			if err := e.postReceives(received); err != nil {
				return n, err
			}
		}
		if k < len(w.wc) {
			break
		}
	}
	return n, nil
}

// errForeign reports a completion whose wr_id we have never posted. Only a broken library returns one, so a
// trial refuses the device (Try).
var errForeign = errors.New("ibv_poll_cq returned a completion of no request")

// poll fills wc with a batch of completions and returns their number.
func (w *worker) poll() (int, error) {
	n, err := w.endpoint.poll(w.wc[:])
	if err != nil {
		return 0, err
	}
	for i := range w.wc[:n] {
		if id := w.wc[i].WRID; !w.hasPosted(id) {
			return 0, fmt.Errorf("%w: wr_id is %#x", errForeign, id)
		}
	}
	return n, nil
}

// hasPosted reports whether this worker may have posted a request with this wr_id: a receive, or an operation
// of a job.
func (w *worker) hasPosted(id uint64) bool {
	op, batch := opOf(id), batchOf(id)
	if op == opRecv {
		return batch == 0
	}
	_, posted := opcodeByKind[op]
	return posted && batch > 0 && batch <= w.batch
}

// endOperations takes completed operations off the number of outstanding ones. It returns the number of
// received messages, and whether any completion was in error.
func (w *worker) endOperations(done []ibv.WC) (received int, failed bool) {
	e := w.endpoint
	sent := int64(0)
	var unknown [operations]uint64
	for i := range done {
		c := &done[i]
		op := opOf(c.WRID)
		ok := c.Status == ibv.WCSuccess

		if op == opRecv {
			e.receives--
			if ok {
				received++
			}
		} else {
			sent++
			w.job.addCompletion(batchOf(c.WRID), c.Status)
		}

		if c.Status == statusUnknown {
			unknown[op]++
			continue
		}
		if !ok {
			failed = true
			if e.fault.status == ibv.WCSuccess {
				e.fault = fault{op, c.Status}
			}
		}
	}
	w.declareUnknown(unknown)
	if sent > 0 {
		w.outstanding.Add(-sent)
	}
	return received, failed
}

// count has the source count completions, and stores the totals. If the source fails on a working device,
// ibv_poll_cq replaces it. If the device fails too, count returns the device's error.
func (w *worker) count(done []ibv.WC, at int64, last bool) error {
	e := w.endpoint
	fresh, err := e.source.count(done, w.totals, at, last)
	if err != nil && e.mode != modePoll {
		if gone := w.queryState(); gone != nil {
			return gone
		}
		w.replaceSource(err)
	}
	if fresh {
		w.storeTotals(at)
	}
	return nil
}

// storeTotals hands the totals, as of the time at, to the poller.
func (w *worker) storeTotals(at int64) {
	for i, c := range w.counters {
		c.last.Store(w.totals[i], at)
	}
}

// replaceSource lets ibv_poll_cq count in place of the failed source. Counters of the peer's operations stop,
// because these leave no completion here.
func (w *worker) replaceSource(why error) {
	e := w.endpoint
	e.reject(e.mode, why)
	if err := e.source.hideWords(); err != nil {
		w.log.Error("taking back the words of a device from the mirror", "err", err)
	}
	for i, c := range w.counters {
		if slices.ContainsFunc(c.cfg.Operations, dataplane.Operation.Remote) {
			e.polled[i] = w.totals[i] // the peer's share of the total is unknown
		}
	}

	e.failedSource = e.source
	e.source = fallbackSource{&w.index, e.polled}
	e.mode = modePoll
	e.sourceErr = why
	w.log.Error("counting completions", "err", why, "source", modePoll)
	w.interrupt("ibv_poll_cq counts in its place", false)
	w.publishView()
}

// countLast counts the completions so far. Callers must close the endpoint next.
func (w *worker) countLast() {
	e := w.endpoint
	if e == nil {
		return
	}
	at := shm.Now()
	for {
		k, err := w.poll()
		if err != nil {
			k = 0
		}
		w.endOperations(w.wc[:k])
		// Even after an error the totals include every polled completion.
		if _, err := e.source.count(w.wc[:k], w.totals, at, true); err != nil {
			w.log.Debug("counting completions to the end", "err", err)
		}
		if k < len(w.wc) {
			break
		}
	}
	// The device's counter may lag behind ibv_poll_cq, and we will not read it again.
	raiseTo(w.totals, e.polled)
	w.storeTotals(at)
}
