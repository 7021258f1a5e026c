package queuepair

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/ibv"
)

// event tells a worker what happened to its device.
type event struct {
	kind     eventKind
	endpoint *endpoint // as of the event; a worker ignores events of an earlier endpoint
	err      error
}

type eventKind uint8

const (
	deviceGone     eventKind = iota
	deviceUnlisted           // the device has left the list
	stateChanged             // the queue pair may have changed its state by itself
	deviceListed             // the device is in the list; sent every watchPeriod
)

// unansweredLimit is the number of failed checks in a row after which we give up a listed device.
const unansweredLimit = 2

// handleEvent handles an event. It ignores one of an earlier endpoint.
func (w *worker) handleEvent(ev event) {
	e := w.endpoint
	if e == nil || ev.endpoint != e {
		return
	}
	switch ev.kind {
	case stateChanged:
		if err := w.queryState(); err != nil {
			w.loseDevice(err)
		}
	case deviceUnlisted:
		w.loseDevice(errors.New("it is not listed any more"))
	case deviceListed:
		w.checkListed()
	case deviceGone:
		w.loseDevice(ev.err)
	}
}

// checkListed tries a command on a listed device. Polling cannot show a loss: completion counters and
// completion queues are memory, which stays readable after the device is gone, and a driver may send no event
// (EFA). A command does fail. It may also fail once on a working device, so we wait for unansweredLimit
// failures in a row.
func (w *worker) checkListed() {
	e := w.endpoint
	err := w.queryState()
	if err == nil {
		e.unanswered = 0
		return
	}
	e.unanswered++
	if e.unanswered == unansweredLimit || errors.Is(err, ibv.ErrDeviceGone) {
		w.loseDevice(fmt.Errorf("it is listed, and carries out no command: %w", err))
	}
}

// watchEvents starts a goroutine that sends the events of the device to the worker.
func (w *worker) watchEvents() {
	var ctx context.Context
	e := w.endpoint
	ctx, e.cancelEvents = context.WithCancel(w.set.ctx)
	w.set.running.Go(func() { w.listen(ctx, e) })
}

// listen sends the events of e's device to the worker, until ctx ends or the device's context is closed.
func (w *worker) listen(ctx context.Context, e *endpoint) {
	for {
		ev, err := e.ctx.NextEvent(ctx)
		switch {
		case ctx.Err() != nil || errors.Is(err, ibv.ErrClosed):
			return
		case errors.Is(err, ibv.ErrDeviceGone):
			w.sendEvent(event{deviceGone, e, err})
			return
		case err != nil: // if the device has ended, CheckDevices notices it
			w.log.Warn("waiting for events of an RDMA device", "err", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(backend.EventPause):
			}
		case ev.Type == ibv.EventDeviceFatal, ev.Type == ibv.EventCQErr:
			w.sendEvent(event{deviceGone, e, fmt.Errorf("it sent the event %v", ev.Type)})
		case ev.QP != nil:
			w.sendEvent(event{kind: stateChanged, endpoint: e})
		}
	}
}

// makeEndpoint makes the endpoint. Only the worker's goroutine may call it, or Start before the worker runs.
func (w *worker) makeEndpoint() error {
	e, err := newEndpoint(w.queuePair, w.totals)
	if err != nil {
		return err
	}
	w.endpoint = e
	w.lost = nil
	w.publishView()
	return nil
}

// closeEndpoint closes the endpoint, if any. Only the worker's goroutine may call it, or Close after the
// worker has ended.
func (w *worker) closeEndpoint() error {
	e := w.endpoint
	if e == nil {
		return nil
	}
	w.endpoint = nil
	w.outstanding.Store(0)
	return e.close()
}

// loseDevice gives up the endpoint after counting the completions so far. Nobody will ever know the result of
// outstanding operations, so the caller of post gets an error, and their counters a discontinuity.
func (w *worker) loseDevice(why error) {
	w.log.Warn("a queue pair lost its device", "why", why)
	w.countLast()
	if w.job != nil {
		w.job.fail(fmt.Errorf("%w: %w: %w", dataplane.ErrNotConnected, backend.ErrDeviceLost, why))
		w.finishJob()
	}

	allEnded := w.outstanding.Load() == 0 // closeEndpoint resets it
	if err := w.closeEndpoint(); err != nil {
		w.log.Debug("closing a queue pair that lost its device", "err", err)
	}

	w.lost = why
	w.interrupt("its device is gone", allEnded)
	w.publishView()
}

// remake tries to make the endpoint again, and reports whether the device is back. It leaves connecting to
// watch: connect hands functions to workers, this one included, and waits for them.
func (w *worker) remake() bool {
	if err := w.makeEndpoint(); err != nil {
		w.log.Debug("looking for a device that was lost", "err", err)
		return false
	}
	w.log.Info("a queue pair is there again", "qpn", w.endpoint.local.QPN)
	w.watchEvents()
	select {
	case w.set.remade <- w.queuePair:
	default: // a request to connect this queue pair is pending already
	}
	return true
}

// queryState reads and publishes the state of the queue pair. Call it after a completion in error or an event:
// either may have changed the state.
func (w *worker) queryState() error {
	e := w.endpoint
	defer w.publishView()
	a, err := e.pair().Query(ibv.QPAttrState)
	if err != nil {
		return err
	}
	if a.State != e.state {
		e.state = a.State
		if e.state == ibv.QPSErr {
			w.log.Warn("a queue pair went to state ERR", "why", e.fault.String())
		}
	}
	return nil
}

// publishView publishes the state of the endpoint, or of none while the device is gone.
func (w *worker) publishView() {
	v := view{lost: w.lost}
	if w.endpoint != nil {
		v = w.endpoint.viewNow()
		v.lost = w.lost
	}
	w.setView(v)
}
