package queuepair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
)

// List implements dataplane.QueuePairs.
func (s *Set) List(context.Context) ([]dataplane.QueuePairState, error) {
	if s.opts.Closed() {
		return nil, dataplane.ErrClosed
	}
	out := make([]dataplane.QueuePairState, 0, len(s.all))
	for _, q := range s.all {
		v := q.current()
		st := dataplane.QueuePairState{
			Name:        q.cfg.Name,
			Device:      q.cfg.Device,
			Type:        q.cfg.Type,
			Port:        q.cfg.Port,
			State:       v.state,
			Local:       v.local,
			Peer:        v.peer,
			Source:      v.source,
			Rejected:    v.rejected,
			Outstanding: int(q.outstanding.Load()),
		}
		for _, c := range q.counters {
			st.Counters = append(st.Counters, dataplane.CountedOperations{
				CompletionCounter: c.cfg,
				Counter:           c.handle,
			})
		}
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b dataplane.QueuePairState) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// Connect implements dataplane.QueuePairs. It takes no lock of the engine, so it does not wait for control
// calls. The zero peer stands for the peer in the configuration.
func (s *Set) Connect(ctx context.Context, name string, peer dataplane.QueuePairAddress) error {
	q, err := s.find(name)
	if err != nil {
		return err
	}
	if peer != (dataplane.QueuePairAddress{}) {
		return q.connect(ctx, peer, true)
	}
	if !s.hasPeer(q) {
		return fmt.Errorf("queue pair %q: connecting it: %w: give the peer's address: %w", name, errNoPeer, dataplane.ErrInvalid)
	}
	return s.connect(ctx, q, true)
}

var errNoPeer = errors.New("the configuration names no peer and no queue pair to connect it to")

// Post implements dataplane.QueuePairs. Like Connect, it does not wait for control calls.
func (s *Set) Post(ctx context.Context, name string, op dataplane.Operation, count int) (dataplane.Posted, error) {
	q, err := s.find(name)
	if err != nil {
		return dataplane.Posted{}, err
	}
	return q.post(ctx, op, count)
}

// find returns the queue pair with this name. After the instance is closed it finds none.
func (s *Set) find(name string) (*queuePair, error) {
	if s.opts.Closed() {
		return nil, dataplane.ErrClosed
	}
	for _, q := range s.all {
		if q.cfg.Name == name {
			return q, nil
		}
	}
	return nil, fmt.Errorf("queue pair %q: %w", name, dataplane.ErrNotFound)
}

// connect connects a queue pair as configured: to its peer, or to the queue pair named by its `connect`.
// An existing connection stays as it is, unless anew is set. If the other end is gone, watch connects the
// two when it returns.
//
// A reliable connection has two ends, so a single `connect` in the configuration connects both queue
// pairs. A datagram queue pair needs only its own destination.
func (s *Set) connect(ctx context.Context, q *queuePair, anew bool) error {
	if q.cfg.Peer != nil {
		return q.connect(ctx, *q.cfg.Peer, anew)
	}

	var errs []error
	bothEnds := q.cfg.Type == dataplane.RC
	for _, other := range s.all {
		namesOther := q.cfg.Connect == other.cfg.Name
		namedByOther := other.cfg.Connect == q.cfg.Name
		if namesOther || bothEnds && namedByOther {
			errs = append(errs, q.connectTo(ctx, other, anew))
		}
		if other != q && (namedByOther || bothEnds && namesOther) {
			errs = append(errs, other.connectTo(ctx, q, anew))
		}
	}
	return errors.Join(errs...)
}

// hasPeer reports whether the configuration names anything to connect the queue pair to.
func (s *Set) hasPeer(q *queuePair) bool {
	if q.cfg.Peer != nil || q.cfg.Connect != "" {
		return true
	}
	namesIt := func(o *queuePair) bool { return o.cfg.Connect == q.cfg.Name }
	return q.cfg.Type == dataplane.RC && slices.ContainsFunc(s.all, namesIt)
}
