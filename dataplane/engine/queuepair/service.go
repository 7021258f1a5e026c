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

// Connect implements dataplane.QueuePairs. It does not wait for control calls.
func (s *Set) Connect(ctx context.Context, name string, peer dataplane.QueuePairAddress) error {
	q, err := s.find(name)
	if err != nil {
		return err
	}
	if peer != (dataplane.QueuePairAddress{}) {
		return q.connect(ctx, peer, true)
	}
	if !s.hasPeer(q) {
		return fmt.Errorf("queue pair %q: %w: %w", name, errNoPeer, dataplane.ErrInvalid)
	}
	return s.connect(ctx, q, true)
}

var errNoPeer = errors.New("the configuration names no peer and no queue pair to connect it to")

// Post implements dataplane.QueuePairs. It does not wait for control calls.
func (s *Set) Post(ctx context.Context, name string, op dataplane.Operation, count int) (dataplane.Posted, error) {
	q, err := s.find(name)
	if err != nil {
		return dataplane.Posted{}, err
	}
	return q.post(ctx, op, count)
}

// find returns the queue pair of that name while the instance is open.
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

// connect connects a queue pair as the configuration says: to its peer, or to the other queue pair,
// whichever of the two names the other. A queue pair that is connected so already stays as it is, unless
// anew is set. A queue pair whose other end is gone waits for it.
//
// A reliable connection has two ends, so one `connect` in the configuration connects both queue pairs. A
// datagram needs to know its destination alone.
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

// hasPeer reports whether the configuration connects the queue pair.
func (s *Set) hasPeer(q *queuePair) bool {
	if q.cfg.Peer != nil || q.cfg.Connect != "" {
		return true
	}
	namesIt := func(o *queuePair) bool { return o.cfg.Connect == q.cfg.Name }
	return q.cfg.Type == dataplane.RC && slices.ContainsFunc(s.all, namesIt)
}
