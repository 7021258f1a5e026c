package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/trial"
	"github.com/flowtally/flowtally/dataplane/probe"
	"github.com/flowtally/flowtally/ibv"
)

// Name implements source.
func (s *queuePairs) Name() string { return "rdma" }

// Read implements source.
func (s *queuePairs) Read(ids []uint32, dst []backend.Pair) error {
	for i, id := range ids {
		dst[i], _ = s.byID[id].cell.Load()
	}
	return nil
}

// ReadTimed implements timed.
func (s *queuePairs) ReadTimed(ids []uint32, dst []backend.Pair, at []int64) error {
	for i, id := range ids {
		dst[i], at[i] = s.byID[id].cell.Load()
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
	if s.guard.Library() == nil {
		s.lib, err = ibv.Load(ibv.Options{
			Library: s.cfg.RDMA.Library, MLX5: s.cfg.RDMA.MLX5, EFA: s.cfg.RDMA.EFA, Logger: s.log, Calls: s.guard.Calls(),
		})
		if err != nil {
			return fmt.Errorf("queue pairs: %w", err)
		}
	}
	if s.ns, err = backend.CurrentNetns(); err != nil {
		return fmt.Errorf("queue pairs: %w", err)
	}
	for _, q := range s.all {
		var crash *trial.CrashedError
		if err := q.make(); errors.As(err, &crash) { // the other devices count
			q.gone = err
			q.show()
		} else if err != nil {
			return fmt.Errorf("queue pair %q: making it on %s: %w", q.cfg.Name, q.cfg.Device, err)
		}
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	for _, q := range s.all {
		s.workers.Go(q.run)
	}
	for _, q := range s.all {
		if err := s.link(s.ctx, q, false); err != nil && q.look().lost == nil {
			return err
		}
	}
	s.workers.Go(func() { s.watch(s.ctx) })
	return nil
}

// returnTicks of ReturnPeriod pass between two looks at the list of devices.
const returnTicks = backend.CalmTicks

// watch connects queue pairs that were made again. It also looks whether devices are still in the list
// and carry out commands, because some drivers (rxe) send no event when a device is removed.
func (s *queuePairs) watch(ctx context.Context) {
	tick := time.NewTicker(returnTicks * backend.ReturnPeriod)
	defer tick.Stop()
	loose := make(map[*queuePair]bool) // that could not be connected
	again := func(q *queuePair) {
		err := s.link(ctx, q, false)
		if loose[q] = err != nil; err != nil {
			q.log.Warn("connecting a queue pair again", "err", err)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case q := <-s.remade:
			again(q)
		case <-tick.C:
			s.look()
			for q, is := range loose {
				if is {
					again(q)
				}
			}
		}
	}
}

// open opens a device. Where that cannot be, the list of devices may know a better reason: a
// kernel without uverbs has none.
func (s *queuePairs) open(device string) (c *ibv.Context, err error) {
	err = s.ns.Do(func() error {
		if err := s.guard.Device(trial.Request{Device: device}); err != nil {
			return err
		}
		if c, err = s.lib.Open(device); err != nil {
			if _, why := s.lib.Devices(); why != nil {
				return why
			}
		}
		return err
	})
	return c, err
}

func (s *queuePairs) devices() (list []ibv.Device, err error) {
	err = s.ns.Do(func() error {
		list, err = s.lib.Devices()
		return err
	})
	return list, err
}

// look gives up the queue pairs whose device is not in the list, and has the others ask their device. A
// device may return, and a queue pair be made again on it, while look reads the list: look gives up only
// the endpoints that were there before.
func (s *queuePairs) look() {
	if s.lib == nil {
		return
	}
	before := make([]*endpoint, len(s.all))
	for i, q := range s.all {
		before[i] = q.look().made
	}
	devices, err := s.devices()
	if err != nil && !errors.Is(err, probe.ErrNotSupported) { // a kernel without RDMA has none
		s.log.Debug("listing RDMA devices", "err", err)
		return
	}
	for i, q := range s.all {
		switch {
		case before[i] == nil:
		case !slices.ContainsFunc(devices, func(d ibv.Device) bool { return d.Name == q.cfg.Device }):
			q.hear(occurrence{kind: unlisted, by: before[i]})
		default:
			select {
			case q.happened <- occurrence{kind: listed, by: before[i]}:
			default: // a verb keeps the goroutine: a device that hangs must not keep the others from being looked at
			}
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
	both := q.cfg.Type == dataplane.RC
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
		q.cfg.Type == dataplane.RC && slices.ContainsFunc(s.all, func(o *queuePair) bool { return o.cfg.Connect == q.cfg.Name })
}

// connectTo connects a queue pair to another one of the instance. Two of which a device is gone
// are linked when it is back; who asked for the connection (anew) is told that there is none.
func (q *queuePair) connectTo(ctx context.Context, other *queuePair, anew bool) error {
	var err error
	if to := other.look().local; to.QPN != 0 {
		err = q.connect(ctx, to, anew)
	} else {
		err = fmt.Errorf("queue pair %q: %w: %w", other.cfg.Name, dataplane.ErrNotConnected, backend.ErrDeviceLost)
	}
	if !anew && errors.Is(err, backend.ErrDeviceLost) {
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
	done := make(chan error, 1)
	go func() { done <- s.takeDown() }()
	select {
	case err := <-done:
		return err
	case <-time.After(backend.CloseBound):
		return fmt.Errorf("queue pairs: devices are not closed after %v: what they still hold goes with the process", backend.CloseBound)
	}
}

func (s *queuePairs) takeDown() error {
	if s.stop != nil {
		s.stop()
		for _, q := range s.all {
			close(q.stop)
		}
		s.workers.Wait()
		s.stop = nil
	}
	var errs []error
	for _, q := range s.all {
		if err := q.unmake(); err != nil && !errors.Is(err, ibv.ErrDeviceGone) {
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
