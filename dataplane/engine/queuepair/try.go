package queuepair

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/shm"
)

// tryBound limits the wait for all operations in a trial of a device. It is shorter than the bound of the trial's
// process: an operation may fail to complete just because the link is down, and this must not exclude the device.
const tryBound = time.Second

// Try makes each queue pair as an instance would, one after the other, connects it to itself, posts an operation of
// every possible kind, and polls the completions.
//
// It returns an error only if ibv_poll_cq returns a completion of no request. Errors of verbs do not matter in a trial,
// because Start will return them again. A trial is there to find verbs that crash or hang.
func Try(lib *ibv.Library, cfgs []dataplane.QueuePair) error {
	ns, err := backend.CurrentNetns()
	if err != nil {
		return nil
	}
	defer ns.Close()

	until := time.Now().Add(tryBound)
	var errs []error
	for _, cfg := range cfgs {
		cfg.Receives = max(cfg.WithDefaults().Receives, 1) // for the message to itself
		s := New(Options{
			Config:  dataplane.Config{QueuePairs: []dataplane.QueuePair{cfg}},
			Logger:  slog.New(slog.DiscardHandler),
			Mirror:  noMirror{},
			Publish: func(dataplane.Event) {},
			Refuse:  func(string) error { return nil },
		})
		s.lib = lib
		s.ns = ns
		if err := tryOn(s.all[0].worker, until); errors.Is(err, errForeign) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// tryOn makes an endpoint, uses it and destroys it. It does the worker's work itself, so the worker must not run.
func tryOn(w *worker, until time.Time) error {
	e, err := newEndpoint(w.queuePair, w.totals)
	if err != nil {
		return err
	}
	w.endpoint = e
	defer func() { _ = w.closeEndpoint() }()
	if w.cfg.Type != dataplane.RawPacket {
		if err := e.setPeer(e.local); err != nil {
			return err
		}
	}
	for kind := range dataplane.Operations() {
		if !w.posts(kind) {
			continue
		}
		if err := tryOperation(w, kind, until); err != nil {
			return err
		}
	}
	_, err = w.drain() // a queue pair may post nothing, and a broken library return a completion all the same
	return err
}

// tryOperation posts one operation and polls until it has completed.
func tryOperation(w *worker, kind int, until time.Time) error {
	j := &job{op: kind, left: 1, done: make(chan struct{})}
	if err := w.startJob(j); err != nil {
		return err
	}
	for w.job != nil {
		w.postJob()
		if _, err := w.drain(); err != nil {
			return err
		}
		if time.Now().After(until) {
			return fmt.Errorf("posting %s: %w", dataplane.Operations()[kind], context.DeadlineExceeded)
		}
		time.Sleep(pauseMin)
	}
	return j.err
}

// noMirror replaces the mirror in a trial. Without a device segment the device's counters are made in memory of the
// library; counterModes tries counters in memory of the caller.
type noMirror struct{}

var errNoMirror = errors.New("a trial has no mirror")

func (noMirror) SetSource(shm.Handle, string, string) error     { return nil }
func (noMirror) SetFlags(shm.Handle, bool, bool, bool) error    { return nil }
func (noMirror) SetContinuity(shm.Handle, shm.Continuity) error { return nil }
func (noMirror) DeviceSegment(int) (*shm.DeviceSegment, error)  { return nil, errNoMirror }
func (noMirror) ClearDevice(shm.Handle) error                   { return nil }
func (noMirror) SetDevice(shm.Handle, *shm.DeviceSlot, uint64, uint64, uint64) error {
	return errNoMirror
}
