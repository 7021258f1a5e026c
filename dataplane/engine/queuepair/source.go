package queuepair

import (
	"errors"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/probe"
)

// completionSource counts the completions of a queue pair. Whatever the source, the worker polls the completion
// queue, because the device writes every completion there too.
type completionSource interface {
	// count adds to totals the completions since the last call. done are the completions just polled.
	//
	// A source that has to ask the device may put this off, unless last is set. If fresh is true, it has
	// asked, and totals are as of the time at or later. Even after an error, totals include every polled
	// completion.
	count(done []ibv.WC, totals []backend.Pair, at int64, last bool) (fresh bool, err error)

	// hideWords makes readers of the mirror load the ordinary value instead of the device's words. It leaves
	// the totals alone.
	hideWords() error

	// Close frees the counters of the source. Call it after destroying the queue pair.
	Close() error
}

// candidate is a source that chooseSource may try, on a queue pair in RESET. open returns the mode in which the
// source counts.
type candidate struct {
	source dataplane.CompletionSource
	open   func(e *endpoint) (s completionSource, mode string, err error)
}

// candidates returns the sources that the configuration allows, best first.
func (e *endpoint) candidates() []candidate {
	all := []candidate{
		{dataplane.SourceCompCntr, openDeviceCounters},
		{dataplane.SourceCollapsedCQ, openCollapsed},
		{dataplane.SourceCQRing, openRing},
		{dataplane.SourcePollCQ, openPoll},
	}
	switch {
	case e.cfg.Source != dataplane.SourceAuto:
		all = slices.DeleteFunc(all, func(c candidate) bool { return c.source != e.cfg.Source })
	case len(e.counters) == 0:
		all = all[len(all)-1:] // there is nothing to count
	}
	return all
}

// The modes of dataplane.Source: the values of dataplane.CompletionSource, and one more for a device that counts
// in the mirror.
const (
	modeCompCntr = string(dataplane.SourceCompCntr)
	modeExternal = modeCompCntr + "+external"
	modeRing     = string(dataplane.SourceCQRing)
	modePoll     = string(dataplane.SourcePollCQ)

	modeCollapsed = string(dataplane.SourceCollapsedCQ)
)

// chooseSource makes the queue pair with the first source that works, and records the reasons against the earlier
// ones. Each source gets a new queue pair, because a completion counter cannot be detached.
func (e *endpoint) chooseSource() error {
	var errs []error
	for _, c := range e.candidates() {
		err := e.createQueues()
		if err != nil {
			return err
		}
		e.source, e.mode, err = c.open(e)
		if err == nil {
			return nil
		}

		e.reject(string(c.source), err)
		errs = append(errs, fmt.Errorf("%s: %w", c.source, err))
		if err := e.destroyQueues(); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: %w", dataplane.ErrUnplaced, errors.Join(errs...))
}

// reject records the reason against a source. Users see it in the list of queue pairs.
func (e *endpoint) reject(source string, err error) {
	e.rejected = append(e.rejected, dataplane.Rejection{Backend: source, Reason: backend.ReasonOf(err)})
}

// refuseRemote returns an error if a counter includes operations of the peer: these leave no completion in our
// queue.
func (e *endpoint) refuseRemote() error {
	for kind, i := range e.index {
		if op := dataplane.Operations()[kind]; i >= 0 && op.Remote() {
			return &probe.UnsupportedError{
				Feature: "counting " + string(op),
				Object:  e.cfg.Device,
				Reason:  "an operation of the peer leaves no completion in a queue here",
				Fix:     "use a device that has completion counters of it (EFA, rdma-core 65), or count it at the peer",
			}
		}
	}
	return nil
}

// pollSource counts polled completions. It works on every device. A completion whose result nobody knows is in neither value.
type pollSource struct{ index *counterIndex }

func openPoll(e *endpoint) (completionSource, string, error) {
	if err := e.refuseRemote(); err != nil {
		return nil, "", err
	}
	return pollSource{&e.index}, modePoll, nil
}

func (s pollSource) count(done []ibv.WC, totals []backend.Pair, _ int64, _ bool) (bool, error) {
	for i := range done {
		if done[i].Status != statusUnknown {
			s.index.add(totals, opOf(done[i].WRID), done[i].Status == ibv.WCSuccess)
		}
	}
	return true, nil
}

func (pollSource) hideWords() error { return nil }
func (pollSource) Close() error     { return nil }

// fallbackSource counts polled completions in place of a failed source. The failed source may have been ahead of
// ibv_poll_cq. So the total does not change until the polled total has caught up with it: otherwise some completions
// would count twice.
type fallbackSource struct {
	index  *counterIndex
	polled []backend.Pair // totals of the polled completions
}

func (s fallbackSource) count(done []ibv.WC, totals []backend.Pair, at int64, last bool) (bool, error) {
	_, err := (pollSource{s.index}).count(done, s.polled, at, last)
	raiseTo(totals, s.polled)
	return true, err
}

func (fallbackSource) hideWords() error { return nil }
func (fallbackSource) Close() error     { return nil }

// raiseTo raises each total to the polled one if it is lower.
func raiseTo(totals, polled []backend.Pair) {
	for i, p := range polled {
		t := &totals[i]
		t.Packets = max(t.Packets, p.Packets)
		t.Bytes = max(t.Bytes, p.Bytes)
	}
}
