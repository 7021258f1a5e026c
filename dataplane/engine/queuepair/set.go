package queuepair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/probe"
	"github.com/flowtally/flowtally/shm"
)

// Options are the options of a Set.
type Options struct {
	Config dataplane.Config
	Logger *slog.Logger
	Mirror Mirror
	// Entry finds or makes the mirror's entry of a counter, and returns its handle and its continuity.
	Entry func(shm.Entry) (shm.Handle, shm.Continuity, error)
	// Publish sends an event to the receivers of the instance.
	Publish func(dataplane.Event)
	// Refuse returns the reason against using a device, or nil. The device "" is libibverbs itself.
	Refuse func(device string) error
	// Calls observes every call of a verb (optional).
	Calls ibv.Calls
	// Closed reports whether the instance is closed.
	Closed func() bool
}

// Mirror is what running queue pairs need of shm.Writer.
type Mirror interface {
	SetSource(h shm.Handle, source, basis string) error
	SetFlags(h shm.Handle, valid, stale, ambiguous bool) error
	SetContinuity(h shm.Handle, c shm.Continuity) error
	DeviceSegment(slots int) (*shm.DeviceSegment, error)
	SetDevice(h shm.Handle, s *shm.DeviceSlot, comp, errs, limit uint64) error
	ClearDevice(h shm.Handle) error
}

// Set is the queue pairs of an instance.
type Set struct {
	opts Options
	lib  *ibv.Library // nil: Refuse refuses libibverbs
	ns   *backend.Netns
	all  []*queuePair // in the order of the configuration
	byID []*counter

	idlePause atomic.Int64    // longest pause between two polls of a completion queue, ns
	changed   chan struct{}   // signals that conditions may have changed
	remade    chan *queuePair // made again on a returned device; watch connects them
	ctx       context.Context // of watch and of the workers' listeners
	stop      context.CancelFunc
	running   sync.WaitGroup
}

var (
	_ dataplane.QueuePairs  = (*Set)(nil)
	_ backend.TimedCounters = (*Set)(nil)
)

// New returns a Set without verbs objects. Call Start to make them.
func New(o Options) *Set {
	s := &Set{
		opts:    o,
		changed: make(chan struct{}, 1),
		remade:  make(chan *queuePair, len(o.Config.QueuePairs)),
	}
	s.SetPeriod(o.Config.Poll.Period)
	for _, cfg := range o.Config.QueuePairs {
		q := newQueuePair(s, cfg)
		s.all = append(s.all, q)
		s.byID = append(s.byID, q.counters...)
	}
	return s
}

// SetPeriod sets the longest pause between two polls of an idle completion queue: the poller's period,
// within pauseIdleLeast and pauseIdleMost. 0 means dataplane.DefaultPollPeriod.
func (s *Set) SetPeriod(period time.Duration) {
	pause := cmp.Or(period, dataplane.DefaultPollPeriod)
	pause = min(max(pause, pauseIdleLeast), pauseIdleMost)
	s.idlePause.Store(int64(pause))
}

// Start opens an entry in the mirror for each counter, makes every queue pair, and connects them as
// configured. After an error, callers must still call Close to free what Start has made.
func (s *Set) Start() error {
	if len(s.all) == 0 {
		return nil
	}

	if err := s.openEntries(); err != nil {
		return err
	}
	if err := s.openLibrary(); err != nil {
		return fmt.Errorf("queue pairs: %w", err)
	}
	if err := s.makeEndpoints(); err != nil {
		return err
	}

	// The workers connect, so they must run first. watch starts last: it connects queue pairs made again.
	s.ctx, s.stop = context.WithCancel(context.Background())
	for _, q := range s.all {
		s.running.Go(q.worker.run)
	}
	for _, q := range s.all {
		if err := s.connect(s.ctx, q, false); err != nil && q.current().lost == nil {
			return err
		}
	}
	s.running.Go(func() { s.watch(s.ctx) })
	return nil
}

// openEntries opens the mirror's entry of each counter: that of the previous process if it is the same
// counter, otherwise a new one.
func (s *Set) openEntries() (err error) {
	for _, q := range s.all {
		for _, c := range q.counters {
			c.handle, c.continuity, err = s.opts.Entry(q.entry(c))
			if err != nil {
				return fmt.Errorf("queue pair %q: counter %q: %w", q.cfg.Name, c.cfg.Name, err)
			}
		}
	}
	return nil
}

// openLibrary loads libibverbs, unless it is refused. It also opens the current network namespace, because
// devices are only visible in their own.
func (s *Set) openLibrary() (err error) {
	if s.opts.Refuse("") == nil {
		rdma := s.opts.Config.RDMA
		s.lib, err = ibv.Load(ibv.Options{
			Library: rdma.Library,
			MLX5:    rdma.MLX5,
			EFA:     rdma.EFA,
			Logger:  s.opts.Logger,
			Calls:   s.opts.Calls,
		})
		if err != nil {
			return err
		}
	}
	s.ns, err = backend.CurrentNetns()
	return err
}

// makeEndpoints makes the queue pairs. A refused device must not keep the other devices from counting, so we
// treat it like a lost one: its queue pairs wait for it.
func (s *Set) makeEndpoints() error {
	for _, q := range s.all {
		err := q.worker.makeEndpoint()
		var refused *refusedError
		switch {
		case err == nil:
		case errors.As(err, &refused):
			q.worker.lost = err
			q.worker.publishView()
		default:
			return fmt.Errorf("queue pair %q: making it on %s: %w", q.cfg.Name, q.cfg.Device, err)
		}
	}
	return nil
}

// refusedError is an error of Options.Refuse.
type refusedError struct{ error }

func (e *refusedError) Unwrap() error { return e.error }

// watchPeriod is the time between two looks at the list of devices.
const watchPeriod = backend.CalmTicks * backend.ReturnPeriod

// watch connects the queue pairs made again, and tries once more later if this fails. It also checks the
// devices, because some drivers (rxe) send no event when a device is removed.
func (s *Set) watch(ctx context.Context) {
	tick := time.NewTicker(watchPeriod)
	defer tick.Stop()

	unconnected := make(map[*queuePair]bool) // those to try again at the next tick
	reconnect := func(q *queuePair) {
		err := s.connect(ctx, q, false)
		if err == nil {
			delete(unconnected, q)
			return
		}
		unconnected[q] = true
		q.log.Warn("connecting a queue pair again", "err", err)
	}

	for {
		select {
		case <-ctx.Done():
			return
		case q := <-s.remade:
			reconnect(q)
		case <-tick.C:
			s.CheckDevices()
			for q := range unconnected {
				reconnect(q)
			}
		}
	}
}

// open opens a device. If this fails, we also list the devices: on a kernel without uverbs the error of the
// list is the better reason.
func (s *Set) open(device string) (c *ibv.Context, err error) {
	err = s.ns.Do(func() error {
		if err := s.opts.Refuse(device); err != nil {
			return &refusedError{err}
		}
		c, err = s.lib.Open(device)
		if err == nil {
			return nil
		}
		if _, why := s.lib.Devices(); why != nil {
			return why
		}
		return err
	})
	return c, err
}

// devices lists the devices of the network namespace in which Start ran.
func (s *Set) devices() (list []ibv.Device, err error) {
	err = s.ns.Do(func() error {
		list, err = s.lib.Devices()
		return err
	})
	return list, err
}

// CheckDevices tells each worker whether its device is listed. While we read the list, a device may return
// and its worker may make a new endpoint, to which the list does not apply. So each event names the endpoint
// from before, and the worker ignores it if it has another one by then.
func (s *Set) CheckDevices() {
	if s.lib == nil {
		return
	}
	before := make([]*endpoint, len(s.all))
	for i, q := range s.all {
		before[i] = q.current().endpoint
	}

	devices, err := s.devices()
	if err != nil && !errors.Is(err, probe.ErrNotSupported) { // a kernel without RDMA lists no device
		s.opts.Logger.Debug("listing RDMA devices", "err", err)
		return
	}

	for i, q := range s.all {
		if before[i] == nil {
			continue
		}
		kind := deviceUnlisted
		if slices.ContainsFunc(devices, func(d ibv.Device) bool { return d.Name == q.cfg.Device }) {
			kind = deviceListed
		}
		select {
		case q.events <- event{kind: kind, endpoint: before[i]}:
		default: // the worker hangs inside a verb, and must not delay the check of the other devices
		}
	}
}

// Close counts the last completions, ends the goroutines and unloads the library. The counters stay
// readable. If a device hangs, Close returns an error after backend.CloseBound.
func (s *Set) Close() error {
	if s == nil {
		return nil
	}
	done := make(chan error, 1)
	go func() { done <- s.release() }()
	select {
	case err := <-done:
		return err
	case <-time.After(backend.CloseBound):
		return fmt.Errorf("queue pairs: devices are not closed after %v: the process still holds them, and frees them when it ends", backend.CloseBound)
	}
}

// release ends the goroutines, then closes the queue pairs, which no goroutine uses any more, and the library
// last.
func (s *Set) release() error {
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
		if err := q.worker.closeEndpoint(); err != nil && !errors.Is(err, ibv.ErrDeviceGone) {
			errs = append(errs, fmt.Errorf("queue pair %q: closing it: %w", q.cfg.Name, err))
		}
	}
	if s.lib != nil {
		errs = append(errs, s.lib.Close())
	}
	if s.ns != nil {
		errs = append(errs, s.ns.Close())
	}
	s.lib, s.ns = nil, nil
	return errors.Join(errs...)
}
