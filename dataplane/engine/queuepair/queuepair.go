package queuepair

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// queuePair is a queue pair of the configuration, as every goroutine may use it. Its worker owns
// the verbs objects. Other goroutines hand functions to the worker (call) and events (sendEvent),
// and read view and the counters.
//
// Lock order: mirrorMu, then mu.
type queuePair struct {
	cfg      dataplane.QueuePair // with defaults
	set      *Set
	log      *slog.Logger
	counters []*counter
	index    counterIndex
	worker   *worker

	turns    chan struct{} // one token: callers of post take turns
	requests chan func()
	events   chan event
	stop     chan struct{} // closed when the worker is to end
	done     chan struct{} // closed when the worker has ended

	outstanding atomic.Int64 // sends

	// mirrorMu is held while the mirror is written, so that the newest state is written last.
	mirrorMu sync.Mutex

	mu   sync.Mutex
	view view
}

// view is the state of a queue pair that other goroutines may read.
type view struct {
	endpoint    *endpoint // nil while the device is gone; for comparison only
	state       string
	local       dataplane.QueuePairAddress
	peer        dataplane.QueuePairAddress
	source      dataplane.Source
	rejected    []dataplane.Rejection
	lost        error  // why the device counts as gone; nil: it is there
	failed      string // why the queue pair is in an error state; "": it is not
	unconnected string // why the last attempt to connect it failed; "": no attempt failed
	sourceErr   error  // why the first source was replaced
}

// operations is the number of kinds of operation. The number of a kind is its place in
// dataplane.Operations, which is its bit in the op mask of verbs.
const operations = 6

// The kinds that have completions of their own.
const (
	opSend      = 0
	opRecv      = 1
	opRDMARead  = 2
	opRDMAWrite = 4
)

// counter is a completion counter of the configuration: completions, and completions in error.
type counter struct {
	cfg        dataplane.CompletionCounter
	handle     shm.Handle
	last       backend.LastSample // total of this process
	continuity shm.Continuity     // as in the mirror; guarded by the queue pair's mu once its worker runs
}

// onlyPosted reports whether the counter counts only operations that are posted here, and none that
// the peer begins.
func (c *counter) onlyPosted() bool {
	begunByPeer := func(op dataplane.Operation) bool { return op == dataplane.Recv || op.Remote() }
	return !slices.ContainsFunc(c.cfg.Operations, begunByPeer)
}

// base returns the total of earlier processes: completions as packets, errors as bytes.
func (c *counter) base() backend.Pair {
	return backend.Pair{Packets: c.continuity.BasePackets, Bytes: c.continuity.BaseBytes}
}

// counterIndex is the index of each kind's counter in the queue pair; -1: the kind is not counted.
type counterIndex [operations]int8

// add counts one completion of op. ok is false for a completion in error.
func (x *counterIndex) add(totals []backend.Pair, op int, ok bool) {
	switch i := x[op]; {
	case i < 0: // the kind is not counted
	case ok:
		totals[i].Packets++
	default:
		totals[i].Bytes++
	}
}

// newQueuePair returns a queue pair without verbs objects, whose worker does not run yet.
func newQueuePair(s *Set, cfg dataplane.QueuePair) *queuePair {
	cfg = cfg.WithDefaults()
	cfg.Receives = max(cfg.Receives, 0) // -1: none
	q := &queuePair{
		cfg:      cfg,
		set:      s,
		log:      s.opts.Logger.With("queue_pair", cfg.Name),
		turns:    make(chan struct{}, 1),
		requests: make(chan func()),
		events:   make(chan event, 8),
		stop:     make(chan struct{}),
		done:     make(chan struct{}),
	}
	q.worker = &worker{queuePair: q, totals: make([]backend.Pair, len(cfg.Counters))}

	for op := range q.index {
		q.index[op] = -1
	}
	for i, k := range cfg.Counters {
		q.counters = append(q.counters, &counter{cfg: k})
		for _, op := range k.Operations {
			q.index[slices.Index(dataplane.Operations(), op)] = int8(i)
		}
	}
	return q
}

// entry returns the mirror's entry of a counter. The entry's text identifies the counter at the next
// start, so it does not name the device.
func (q *queuePair) entry(c *counter) shm.Entry {
	text := string(q.cfg.Type) + ":"
	for _, op := range c.cfg.Operations {
		text += " " + string(op)
	}
	return shm.Entry{
		Name:   c.cfg.Name,
		Kind:   shm.KindCompletion,
		Unit:   completionUnit,
		Text:   text,
		Labels: map[string]string{"queue_pair": q.cfg.Name},
	}
}

// call has the worker run do between two polls of the completion queue, and returns its result. Once the worker runs do,
// call waits for its end.
func (q *queuePair) call(ctx context.Context, do func() error) error {
	result, err := q.submit(ctx, do)
	if err != nil {
		return err
	}
	return <-result
}

// submit hands do to the worker. The channel gets the result.
func (q *queuePair) submit(ctx context.Context, do func() error) (<-chan error, error) {
	result := make(chan error, 1)
	select {
	case q.requests <- func() { result <- do() }:
		return result, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("queue pair %q: %w", q.cfg.Name, context.Cause(ctx))
	case <-q.done:
		return nil, fmt.Errorf("queue pair %q: %w", q.cfg.Name, dataplane.ErrClosed)
	}
}

// sendEvent hands an event to the worker, and waits until the worker has room for it.
func (q *queuePair) sendEvent(ev event) {
	select {
	case q.events <- ev:
	case <-q.done:
	}
}

// connectBound limits how long it may take to connect a queue pair.
const connectBound = backend.CloseBound

var errHangs = fmt.Errorf("a verb of the device does not return: %w", context.DeadlineExceeded)

// connect connects the queue pair to peer. A queue pair that is connected to that peer already stays as
// it is, unless anew is set: then its outstanding operations end with errors first.
func (q *queuePair) connect(ctx context.Context, peer dataplane.QueuePairAddress, anew bool) error {
	if q.cfg.Type == dataplane.RawPacket {
		return fmt.Errorf("queue pair %q: one of type raw_packet has no peer: %w", q.cfg.Name, dataplane.ErrInvalid)
	}
	if err := peer.Validate(); err != nil {
		return fmt.Errorf("queue pair %q: its peer: %w", q.cfg.Name, err)
	}

	// Not by call, because that waits for a worker inside a verb that does not return.
	ctx, cancel := context.WithTimeoutCause(ctx, connectBound, errHangs)
	defer cancel()
	result, err := q.submit(ctx, func() error { return q.worker.connectPeer(peer, anew) })
	if err != nil {
		return err
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("queue pair %q: connecting it: %w", q.cfg.Name, context.Cause(ctx))
	}
}

// connectTo connects the queue pair to another queue pair of the instance. Without anew it
// returns nil if a device is gone, because the two are connected when the device is back.
func (q *queuePair) connectTo(ctx context.Context, other *queuePair, anew bool) error {
	var err error
	if to := other.current().local; to.QPN != 0 {
		err = q.connect(ctx, to, anew)
	} else { // the device of the other one is gone
		err = fmt.Errorf("queue pair %q: %w: %w", other.cfg.Name, dataplane.ErrNotConnected, backend.ErrDeviceLost)
	}

	if !anew && errors.Is(err, backend.ErrDeviceLost) {
		return nil
	}
	return err
}
