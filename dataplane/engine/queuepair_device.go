package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/ibv"
)

// occurrence is something that happened to a queue pair's device.
type occurrence struct {
	kind occurred
	by   *endpoint // whose device it was
	what error
}

type occurred uint8

const (
	deviceGone occurred = iota
	unlisted            // the device is not in the list any more
	stateMoved          // the queue pair may have gone to another state by itself
	listed              // the device is in the list, as every few seconds
)

// muteLooks is how many looks in a row a device may fail to answer a command before it is given up.
const muteLooks = 2

// heed does what an occurrence asks for.
func (q *queuePair) heed(o occurrence) {
	e := q.end
	if e == nil || o.by != e {
		return // of a device that was given up meanwhile
	}
	switch o.kind {
	case stateMoved:
		if err := q.examine(); err != nil {
			q.lose(err)
		}
	case unlisted:
		q.lose(errors.New("it is not listed any more"))
	case listed:
		// Completion counters and completion queues are memory: those of a device that is lost read on as they
		// were, without an error, and its driver may send no event (EFA). A command tells.
		err := q.examine()
		if err == nil {
			e.mute = 0
		} else if e.mute++; e.mute == muteLooks || errors.Is(err, ibv.ErrDeviceGone) {
			q.lose(fmt.Errorf("it is listed, and does not answer: %w", err))
		}
	case deviceGone:
		q.lose(o.what)
	}
}

// hear hands an occurrence to the goroutine; one that has much to do already hears it later.
func (q *queuePair) hear(o occurrence) {
	select {
	case q.happened <- o:
	case <-q.done:
	}
}

// attend has what the device says of its own accord handed to the goroutine.
func (q *queuePair) attend() {
	var ctx context.Context
	e := q.end
	ctx, e.deaf = context.WithCancel(q.set.ctx)
	q.set.workers.Go(func() { q.listen(ctx, e) })
}

// listen hands on what the device says, until the endpoint's context is closed.
func (q *queuePair) listen(ctx context.Context, e *endpoint) {
	for {
		ev, err := e.ctx.NextEvent(ctx)
		switch {
		case ctx.Err() != nil || errors.Is(err, ibv.ErrClosed):
			return
		case errors.Is(err, ibv.ErrDeviceGone):
			q.hear(occurrence{deviceGone, e, err})
			return
		case err != nil: // its end shows in the list of devices, too
			q.log.Warn("waiting for events of an RDMA device", "err", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(backend.EventPause):
			}
		case ev.Type == ibv.EventDeviceFatal, ev.Type == ibv.EventCQErr:
			q.hear(occurrence{deviceGone, e, fmt.Errorf("it sent the event %v", ev.Type)})
		case ev.QP != nil:
			q.hear(occurrence{kind: stateMoved, by: e})
		}
	}
}

// lose gives the endpoint up: what completed until now is counted, what did not is not known.
func (q *queuePair) lose(why error) {
	q.log.Warn("a queue pair lost its device", "why", why)
	q.last()
	if q.job != nil {
		q.job.fail(fmt.Errorf("%w: %w: %w", dataplane.ErrNotConnected, backend.ErrDeviceLost, why))
		q.finish()
	}
	ended := q.outstanding.Load() == 0
	if err := q.unmake(); err != nil {
		q.log.Debug("closing a queue pair that lost its device", "err", err)
	}
	q.gone = why
	q.interrupt("its device is gone", ended)
	q.show()
}

// remake makes the queue pair again, if its device is back.
func (q *queuePair) remake() bool {
	if err := q.make(); err != nil {
		q.log.Debug("looking for a device that was lost", "err", err)
		return false
	}
	q.log.Info("a queue pair is there again", "qpn", q.end.local.QPN)
	q.attend()
	select {
	case q.set.remade <- q:
	default: // its turn is still to come
	}
	return true
}
