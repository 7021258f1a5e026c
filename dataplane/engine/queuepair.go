package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/shm"
)

// queuePair is a queue pair of the configuration. One goroutine owns it, with a context of
// its own on its device: it makes it, drains it, posts what callers ask for, and makes it
// again after its device was gone. What others want of it they hand to that goroutine (call);
// what they may look at lies in view and in the tallies.
type queuePair struct {
	cfg     dataplane.QueuePair // every default filled in
	set     *queuePairs
	log     *slog.Logger
	tallies []*tally
	feeds   feeding       // which operations the tallies count
	turns   chan struct{} // one token: the callers of post take turns

	requests chan func()
	happened chan occurrence // on the device
	stop     chan struct{}   // closed when the goroutine is to end
	done     chan struct{}   // closed when it has

	// Of the goroutine alone.
	end    *endpoint // nil while the device is gone
	peer   dataplane.QueuePairAddress
	totals []Pair // by tally, over every endpoint there was
	job    *job
	batch  uint64 // of the last job
	wc     [wcBatch]ibv.WC
	send   [wrBatch]ibv.SendWR
	recv   [wrBatch]ibv.RecvWR

	outstanding atomic.Int64 // sends

	mu   sync.Mutex
	view view
}

// view is what others may know of a queue pair.
type view struct {
	state    string
	local    dataplane.QueuePairAddress
	peer     dataplane.QueuePairAddress
	source   dataplane.Source
	rejected []dataplane.Rejection
	lost     bool   // its device is gone
	trouble  string // why it does not work; "": it does
	broken   error  // why its source is not the one that it began with
}

const (
	// wcBatch and wrBatch are how many completions are taken off, and work requests
	// posted, by one call.
	wcBatch, wrBatch = 64, 64
	// operations is the number of kinds that completions are counted by: an operation is
	// its place in dataplane.Operations, which is its bit in the op mask of verbs.
	operations = 6
)

// The kinds that have completions of their own.
const (
	opSend      = 0
	opRecv      = 1
	opRDMARead  = 2
	opRDMAWrite = 4
)

// tally is a completion counter of the configuration: completions, and those in error.
type tally struct {
	cfg    dataplane.CompletionCounter
	handle shm.Handle
	cell   cell           // the total of this process
	past   shm.Continuity // as the mirror has it; guarded by the queue pair's mu once it runs
}

// queuePairs are the queue pairs of an instance, and a source of the plan: counter i is
// that of byID[i].
type queuePairs struct {
	cfg    dataplane.Config
	log    *slog.Logger
	mirror mirror
	tell   func(dataplane.Event)
	lib    *ibv.Library
	ns     *netns
	all    []*queuePair // in the order of the configuration
	byID   []*tally

	changed chan struct{} // states, and so conditions, may have changed
	remade  chan *queuePair
	ctx     context.Context // of what runs beside the queue pairs' goroutines
	stop    context.CancelFunc
	running sync.WaitGroup
}

// mirror is what queue pairs need of shm.Writer while they run.
type mirror interface {
	SetSource(h shm.Handle, source, basis string) error
	SetFlags(h shm.Handle, valid, stale, ambiguous bool) error
	SetContinuity(h shm.Handle, c shm.Continuity) error
	DeviceSegment(slots int) (*shm.DeviceSegment, error)
	SetDevice(h shm.Handle, s *shm.DeviceSlot, comp, errs, limit uint64) error
	ClearDevice(h shm.Handle) error
}

// kindCompletion is the kind of the entries of completion counters, and completionUnit and
// completionBasis say what their two values are.
const (
	kindCompletion  = "completion"
	completionUnit  = "completions"
	completionBasis = "errors"
)

// newQueuePairs prepares the queue pairs of the configuration. Nothing is made before start.
func newQueuePairs(cfg dataplane.Config, log *slog.Logger, w mirror, tell func(dataplane.Event)) *queuePairs {
	s := &queuePairs{
		cfg: cfg, log: log, mirror: w, tell: tell,
		changed: make(chan struct{}, 1), remade: make(chan *queuePair, len(cfg.QueuePairs)),
	}
	for _, c := range cfg.QueuePairs {
		q := &queuePair{
			cfg: queuePairDefaults(c), set: s, log: log.With("queue_pair", c.Name),
			turns: make(chan struct{}, 1), requests: make(chan func()), happened: make(chan occurrence, 8),
			stop: make(chan struct{}), done: make(chan struct{}), totals: make([]Pair, len(c.Counters)),
		}
		for op := range q.feeds {
			q.feeds[op] = -1
		}
		for i, k := range c.Counters {
			t := &tally{cfg: k}
			q.tallies, s.byID = append(q.tallies, t), append(s.byID, t)
			for _, op := range k.Operations {
				q.feeds[slices.Index(dataplane.Operations(), op)] = int8(i)
			}
		}
		s.all = append(s.all, q)
	}
	return s
}

func queuePairDefaults(c dataplane.QueuePair) dataplane.QueuePair {
	if c.Port == 0 {
		c.Port = 1
	}
	if c.Type == "" {
		c.Type = "rc"
	}
	if c.Source == "" {
		c.Source = "auto"
	}
	if c.SendDepth == 0 {
		c.SendDepth = 256
	}
	switch c.Receives {
	case 0:
		c.Receives = 256
	case -1:
		c.Receives = 0
	}
	return c
}

// entryOf describes a completion counter to readers of the mirror.
func (q *queuePair) entryOf(t *tally) shm.Entry {
	text := fmt.Sprintf("%s of %s port %d:", q.cfg.Type, q.cfg.Device, q.cfg.Port)
	for _, op := range t.cfg.Operations {
		text += " " + string(op)
	}
	return shm.Entry{
		Name: t.cfg.Name, Kind: kindCompletion, Unit: completionUnit, Text: text,
		Labels: map[string]string{"queue_pair": q.cfg.Name},
	}
}

// Name implements source.
func (s *queuePairs) Name() string { return "rdma" }

// Read implements source.
func (s *queuePairs) Read(ids []uint32, dst []Pair) error {
	for i, id := range ids {
		dst[i], _ = s.byID[id].cell.load()
	}
	return nil
}

// ReadTimed implements timed.
func (s *queuePairs) ReadTimed(ids []uint32, dst []Pair, at []int64) error {
	for i, id := range ids {
		dst[i], at[i] = s.byID[id].cell.load()
	}
	return nil
}

// find is the queue pair of that name.
func (s *queuePairs) find(name string) (*queuePair, error) {
	if s != nil {
		for _, q := range s.all {
			if q.cfg.Name == name {
				return q, nil
			}
		}
	}
	return nil, fmt.Errorf("queue pair %q: %w", name, dataplane.ErrNotFound)
}

// counts says whether a completion counter has that name.
func (s *queuePairs) counts(name string) bool {
	return s != nil && slices.ContainsFunc(s.byID, func(t *tally) bool { return t.cfg.Name == name })
}

// start makes every queue pair and connects those that the configuration connects.
func (s *queuePairs) start() (err error) {
	if s.lib, err = ibv.Load(ibv.Options{Library: s.cfg.RDMA.Library, MLX5: s.cfg.RDMA.MLX5, EFA: s.cfg.RDMA.EFA, Logger: s.log}); err != nil {
		return fmt.Errorf("queue pairs: %w", err)
	}
	if s.ns, err = currentNetns(); err != nil {
		return fmt.Errorf("queue pairs: %w", err)
	}
	for _, q := range s.all {
		if err := q.make(); err != nil {
			return fmt.Errorf("queue pair %q: making it on %s: %w", q.cfg.Name, q.cfg.Device, err)
		}
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	for _, q := range s.all {
		s.running.Go(q.run)
	}
	for _, q := range s.all {
		if err := s.link(s.ctx, q, false); err != nil {
			return fmt.Errorf("queue pair %q: connecting it: %w", q.cfg.Name, err)
		}
	}
	s.running.Go(func() { s.watch(s.ctx) })
	return nil
}

// returnTicks of returnPeriod pass between two looks at the list of devices.
const returnTicks = calmTicks

// watch connects again what was made again, and looks whether devices are still in the list:
// a driver that cannot let go of one that is removed (rxe) sends no event.
func (s *queuePairs) watch(ctx context.Context) {
	tick := time.NewTicker(returnTicks * returnPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case q := <-s.remade:
			if err := s.link(ctx, q, false); err != nil {
				q.log.Warn("connecting a queue pair again", "err", err)
			}
		case <-tick.C:
			s.look()
		}
	}
}

func (s *queuePairs) look() {
	var devices []ibv.Device
	err := s.ns.do(func() (err error) {
		devices, err = s.lib.Devices()
		return err
	})
	if err != nil {
		s.log.Debug("listing RDMA devices", "err", err)
		return
	}
	for _, q := range s.all {
		if !slices.ContainsFunc(devices, func(d ibv.Device) bool { return d.Name == q.cfg.Device }) {
			q.hear(occurrence{kind: unlisted})
		}
	}
}

// link connects a queue pair as the configuration says: to its peer, or to the other queue pair,
// whichever of the two names the other. What is connected like that already stays so, unless
// anew. One whose other end is gone waits for it.
func (s *queuePairs) link(ctx context.Context, q *queuePair, anew bool) error {
	if q.cfg.Peer != nil {
		return q.connect(ctx, *q.cfg.Peer, anew)
	}
	var errs []error
	both := q.cfg.Type == "rc"
	for _, other := range s.all {
		to, from := q.cfg.Connect == other.cfg.Name, other.cfg.Connect == q.cfg.Name
		if to || both && from {
			errs = append(errs, q.connectTo(ctx, other, anew))
		}
		if other != q && (from || both && to) {
			errs = append(errs, other.connectTo(ctx, q, anew))
		}
	}
	return errors.Join(errs...)
}

// linked says whether the configuration connects the queue pair to anything.
func (s *queuePairs) linked(q *queuePair) bool {
	return q.cfg.Peer != nil || q.cfg.Connect != "" ||
		q.cfg.Type == "rc" && slices.ContainsFunc(s.all, func(o *queuePair) bool { return o.cfg.Connect == q.cfg.Name })
}

// connectTo connects a queue pair to another one of the instance.
func (q *queuePair) connectTo(ctx context.Context, other *queuePair, anew bool) error {
	to := other.look().local
	if to.QPN == 0 {
		return nil // gone: it is linked when it is back
	}
	err := q.connect(ctx, to, anew)
	if errors.Is(err, errDeviceLost) {
		return nil
	}
	return err
}

// close ends the goroutines, with a last look at what has completed, and unloads the library.
// The tallies can still be read.
func (s *queuePairs) close() error {
	if s == nil {
		return nil
	}
	if s.stop != nil {
		s.stop()
		for _, q := range s.all {
			close(q.stop)
		}
		s.running.Wait()
		s.stop = nil
	}
	var errs []error
	for _, q := range s.all {
		if err := q.unmake(); err != nil {
			errs = append(errs, fmt.Errorf("queue pair %q: closing it: %w", q.cfg.Name, err))
		}
	}
	if s.lib != nil {
		errs = append(errs, s.lib.Close())
	}
	if s.ns != nil {
		errs = append(errs, s.ns.close())
	}
	s.lib, s.ns = nil, nil
	return errors.Join(errs...)
}
