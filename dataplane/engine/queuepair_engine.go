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
	if len(e.pairs.all) == 0 {
		return nil
	}
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
func (e *Engine) QueuePairs() dataplane.QueuePairs { return e.pairs }

// List implements dataplane.QueuePairs.
func (s *queuePairs) List(context.Context) ([]dataplane.QueuePairState, error) {
	if s.closed() {
		return nil, dataplane.ErrClosed
	}
	return s.states(), nil
}

// Connect implements dataplane.QueuePairs. It does not wait for control calls.
func (s *queuePairs) Connect(ctx context.Context, name string, peer dataplane.QueuePairAddress) error {
	q, err := s.running(name)
	if err != nil {
		return err
	}
	if peer != (dataplane.QueuePairAddress{}) {
		return q.connect(ctx, peer, true)
	}
	if !s.linked(q) {
		return fmt.Errorf("queue pair %q: %w: %w", name, errNoPeer, dataplane.ErrInvalid)
	}
	return s.link(ctx, q, true)
}

// Post implements dataplane.QueuePairs. It does not wait for control calls.
func (s *queuePairs) Post(ctx context.Context, name string, op dataplane.Operation, count int) (dataplane.Posted, error) {
	q, err := s.running(name)
	if err != nil {
		return dataplane.Posted{}, err
	}
	return q.post(ctx, op, count)
}

// running returns the queue pair of that name while the instance is open.
func (s *queuePairs) running(name string) (*queuePair, error) {
	if s.closed() {
		return nil, dataplane.ErrClosed
	}
	return s.find(name)
}

// errNoPeer: the configuration does not say what the queue pair is connected to.
var errNoPeer = errors.New("the configuration names no peer and no queue pair to connect it to")
