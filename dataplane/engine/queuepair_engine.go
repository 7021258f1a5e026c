package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// startQueuePairs makes the queue pairs of the configuration and their counters in the mirror.
// It is called with ctl held, while the entries of an earlier process are known.
func (e *Engine) startQueuePairs() error {
	if len(e.cfg.QueuePairs) == 0 {
		return nil
	}
	e.pairs = newQueuePairs(e.cfg, e.log, e.writer, e.events.publish)
	e.pairs.guard = e.guard
	for _, q := range e.pairs.all {
		for _, t := range q.tallies {
			if err := e.publishTally(q, t); err != nil {
				return fmt.Errorf("queue pair %q: counter %q: %w", q.cfg.Name, t.cfg.Name, err)
			}
		}
	}
	if err := e.pairs.start(); err != nil {
		return err
	}
	for id, t := range e.pairs.byID {
		e.plan.set(t.handle, e.pairs, uint32(id), backend.Pair{Packets: t.past.BasePackets, Bytes: t.past.BaseBytes})
	}
	return nil
}

// publishTally gives a completion counter its entry in the mirror. A total of an earlier process
// goes on from its last value: what completed between that and the end of the process is
// not known.
func (e *Engine) publishTally(q *queuePair, t *tally) (err error) {
	cookie := rand.Uint64() | 1
	t.handle, t.past, err = e.entry(q.entryOf(t), nil, func(old *inherited) (shm.Continuity, error) {
		if old == nil {
			return shm.Continuity{Cookie: cookie}, nil
		}
		last := old.total
		if comp, errs, ok := e.writer.LastDevice(old.Handle); ok && comp >= last.Packets && errs >= last.Bytes {
			last.Packets, last.Bytes = comp, errs // a device went on counting after that
		}
		return shm.Continuity{
			Cookie: cookie, BasePackets: last.Packets, BaseBytes: last.Bytes,
			Discontinuities: old.Continuity.Discontinuities + 1,
		}, old.err
	})
	return err
}

// QueuePairs implements dataplane.Service.
func (e *Engine) QueuePairs(context.Context) ([]dataplane.QueuePairState, error) {
	if e.closed() {
		return nil, dataplane.ErrClosed
	}
	return e.pairs.states(), nil
}

// ConnectQueuePair implements dataplane.Service. It does not wait for other control calls.
func (e *Engine) ConnectQueuePair(ctx context.Context, name string, peer dataplane.QueuePairAddress) error {
	q, err := e.queuePair(name)
	if err != nil {
		return err
	}
	if peer != (dataplane.QueuePairAddress{}) {
		return q.connect(ctx, peer, true)
	}
	if !e.pairs.linked(q) {
		return fmt.Errorf("queue pair %q: %w: %w", name, errNoPeer, dataplane.ErrInvalid)
	}
	return e.pairs.link(ctx, q, true)
}

// PostOperations implements dataplane.Service. It does not wait for other control calls.
func (e *Engine) PostOperations(ctx context.Context, name string, op dataplane.Operation, count int) (dataplane.Posted, error) {
	q, err := e.queuePair(name)
	if err != nil {
		return dataplane.Posted{}, err
	}
	return q.post(ctx, op, count)
}

func (e *Engine) queuePair(name string) (*queuePair, error) {
	if e.closed() {
		return nil, dataplane.ErrClosed
	}
	return e.pairs.find(name)
}

// errNoPeer: the configuration does not say what the queue pair is connected to.
var errNoPeer = errors.New("the configuration names no peer and no queue pair to connect it to")
