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

// completionSource counts the completions of a queue pair. The worker polls the completion queue with every
// source, because no source makes a device leave a completion out.
type completionSource interface {
	// count adds to totals the completions since the last call. done are the completions that
	// ibv_poll_cq has just returned. A source that has to ask a device may leave that for a later
	// call, unless this is the last. fresh says that it has asked: totals are as of at, or later.
	// After an error totals include every polled completion.
	count(done []ibv.WC, totals []backend.Pair, at int64, last bool) (fresh bool, err error)
	// hideWords sends readers of the device's words in the mirror back to the ordinary value. Totals stay.
	hideWords() error
	// Close frees the counters of the source, after the queue pair is destroyed.
	Close() error
}

// candidate is a source to try with a queue pair in RESET. open returns the mode in which it counts.
type candidate struct {
	source dataplane.CompletionSource
	open   func(e *endpoint) (s completionSource, mode string, err error)
}

// candidates returns the sources that the configuration allows, best first.
func (e *endpoint) candidates() []candidate {
	all := []candidate{
		{dataplane.SourceCompCntr, openDeviceCounters},
		{dataplane.SourceCollapsedCQ, refuseCollapsed},
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

// The modes of dataplane.Source: the words of dataplane.CompletionSource, and one more for a device that
// writes into the mirror.
const (
	modeCompCntr = string(dataplane.SourceCompCntr)
	modeExternal = modeCompCntr + "+external"
	modeRing     = string(dataplane.SourceCQRing)
	modePoll     = string(dataplane.SourcePollCQ)
)

// chooseSource makes the queue pair with the first source that can count it, and keeps the errors of the
// sources before. Each source gets a new queue pair, because a completion counter cannot be detached.
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

// reject keeps the reason against a source, for the list of queue pairs.
func (e *endpoint) reject(source string, err error) {
	e.rejected = append(e.rejected, dataplane.Rejection{Backend: source, Reason: backend.ReasonOf(err)})
}

// refuseRemote returns an error if a counter is to count operations of the peer, which leave no completion
// in a queue here.
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

// refuseCollapsed always fails: ibv_create_qp takes only completion queues that libibverbs made.
func refuseCollapsed(e *endpoint) (completionSource, string, error) {
	if err := e.refuseRemote(); err != nil {
		return nil, "", err
	}
	return nil, "", &probe.UnsupportedError{
		Feature: "a collapsed completion queue",
		Object:  e.cfg.Device,
		Reason:  "firmware makes one by DevX alone (CREATE_CQ with cc and oi), and ibv_create_qp takes only completion queues of ibv_create_cq",
		Fix:     "use source cq_ring, which reads the entries of an mlx5 completion queue where the device wrote them, or auto",
	}
}

// pollSource counts the completions that ibv_poll_cq returns. Every device has it.
type pollSource struct{ index *counterIndex }

func openPoll(e *endpoint) (completionSource, string, error) {
	if err := e.refuseRemote(); err != nil {
		return nil, "", err
	}
	return pollSource{&e.index}, modePoll, nil
}

func (s pollSource) count(done []ibv.WC, totals []backend.Pair, _ int64, _ bool) (bool, error) {
	for i := range done {
		s.index.add(totals, opOf(done[i].WRID), done[i].Status == ibv.WCSuccess)
	}
	return true, nil
}

func (pollSource) hideWords() error { return nil }
func (pollSource) Close() error     { return nil }

// fallbackSource is ibv_poll_cq in place of a source that failed. The failed source may have counted
// completions that are polled later. So the total stands still until the polled one has caught up with it.
type fallbackSource struct {
	index  *counterIndex
	polled []backend.Pair // totals of the completions that ibv_poll_cq returned
}

func (s fallbackSource) count(done []ibv.WC, totals []backend.Pair, at int64, last bool) (bool, error) {
	_, err := (pollSource{s.index}).count(done, s.polled, at, last)
	raiseTo(totals, s.polled)
	return true, err
}

func (fallbackSource) hideWords() error { return nil }
func (fallbackSource) Close() error     { return nil }

// raiseTo raises totals that are below those of the completions that ibv_poll_cq returned.
func raiseTo(totals, polled []backend.Pair) {
	for i, p := range polled {
		t := &totals[i]
		t.Packets = max(t.Packets, p.Packets)
		t.Bytes = max(t.Bytes, p.Bytes)
	}
}
