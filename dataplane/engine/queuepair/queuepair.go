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

// queuePair is the part of a configured queue pair that any goroutine may use. The verbs objects belong
// to its worker alone: other goroutines hand functions (call) and events (sendEvent) to the worker, and
// read view and the counters.
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

	// mirrorMu serializes writes to the mirror. Without it an older state could overwrite a newer one.
	mirrorMu sync.Mutex

	mu   sync.Mutex
	view view
}

// view is the state of a queue pair that other goroutines may read.
type view struct {
	endpoint    *endpoint // nil while the device is gone; compare it, do not use it
	state       string
	local       dataplane.QueuePairAddress
	peer        dataplane.QueuePairAddress
	source      dataplane.Source
	rejected    []dataplane.Rejection
	lost        error  // why we gave up the device, or nil
	failed      string // why the queue pair is in an error state, or ""
	unconnected string // why the last attempt to connect failed, or ""
	sourceErr   error  // why the first source was replaced, or nil
}

// operations is the number of kinds of operation. A kind is an index into dataplane.Operations, and
// equals the bit number in the op mask of verbs.
const operations = 6

// The kinds with completions on this side. The others begin at the peer.
const (
	opSend      = 0
	opRecv      = 1
	opRDMARead  = 2
	opRDMAWrite = 4
)

// counter is a completion counter of the configuration. It counts completions and, apart from them,
// completions in error.
type counter struct {
	cfg        dataplane.CompletionCounter
	handle     shm.Handle
	last       backend.LastSample // total of this process
	continuity shm.Continuity     // as in the mirror; guarded by the queue pair's mu once its worker runs
}

// onlyPosted reports whether we post all operations of the counter ourselves. The peer begins the others.
func (c *counter) onlyPosted() bool {
	begunByPeer := func(op dataplane.Operation) bool { return op == dataplane.Recv || op.Remote() }
	return !slices.ContainsFunc(c.cfg.Operations, begunByPeer)
}

// base returns the total of earlier processes: completions as packets, errors as bytes.
func (c *counter) base() backend.Pair {
	return backend.Pair{Packets: c.continuity.BasePackets, Bytes: c.continuity.BaseBytes}
}

// counterIndex maps each kind to the index of its counter in the queue pair, or to -1 if no counter
// counts it.
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

// newQueuePair returns a queue pair without verbs objects. The caller makes them and starts the worker.
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

// entry returns the mirror's entry of a counter. A restart finds the counter by this text, so it must not
// name the device, which may be another one by then.
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

// call has the worker run do between two polls of the completion queue, and returns the result. ctx only
// limits the time until the worker begins: call then waits until do returns.
func (q *queuePair) call(ctx context.Context, do func() error) error {
	result, err := q.submit(ctx, do)
	if err != nil {
		return err
	}
	return <-result
}

// submit hands do to the worker and returns without waiting for do. The result arrives on the channel.
func (q *queuePair) submit(ctx context.Context, do func() error) (<-chan error, error) {
	result := make(chan error, 1)
	select {
	case q.requests <- func() { result <- do() }:
		return result, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("queue pair %q: waiting for its device: %w", q.cfg.Name, context.Cause(ctx))
	case <-q.done:
		return nil, fmt.Errorf("queue pair %q: %w", q.cfg.Name, dataplane.ErrClosed)
	}
}

// sendEvent hands an event to the worker. It blocks while the worker's queue of events is full.
func (q *queuePair) sendEvent(ev event) {
	select {
	case q.events <- ev:
	case <-q.done:
	}
}

// connectBound is the time allowed for connecting a queue pair. A verb cannot be cancelled, so without a
// limit a hanging device would block the caller for ever.
const connectBound = backend.CloseBound

var errHangs = fmt.Errorf("a verb of the device does not return: %w", context.DeadlineExceeded)

// connect connects the queue pair to peer. If it is connected to peer already, nothing happens unless
// anew is set: then its outstanding operations end with errors, and it is connected again.
func (q *queuePair) connect(ctx context.Context, peer dataplane.QueuePairAddress, anew bool) error {
	if q.cfg.Type == dataplane.RawPacket {
		return fmt.Errorf("queue pair %q: connecting it: type raw_packet has no peer: set `type` to rc, ud or srd in the configuration: %w",
			q.cfg.Name, dataplane.ErrInvalid)
	}
	if err := peer.Validate(); err != nil {
		return fmt.Errorf("queue pair %q: connecting it: address of the peer: %w", q.cfg.Name, err)
	}

	// Do not use call here: it would wait for ever if the worker hangs inside a verb.
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

// connectTo connects the queue pair to another queue pair of the instance. A lost device is an error only
// with anew, which stands for a user's request: otherwise watch connects the two when the device returns.
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
