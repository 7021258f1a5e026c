package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/probe"
	"github.com/flowtally/flowtally/ibv"
)

// census is what counts the completions of a queue pair: one of its sources. The completion
// queue is drained whatever it is, as nothing that counts makes a device leave a completion out.
type census interface {
	// count adds to totals what completed since it was asked last. done was just taken off
	// the completion queue. fresh: totals are as of at, or later. A census that has to ask a
	// device may leave it for the next time, unless it is the last. After an error totals are
	// what is known without it.
	count(done []ibv.WC, totals []backend.Pair, at int64, last bool) (fresh bool, err error)
	// leave takes back what readers of the mirror can see of it. The totals of before stand.
	leave() error
	// Close gives back what counted, after the queue pair is gone.
	Close() error
}

// candidate is a source that is tried, with a queue pair in RESET; mode is how it counts.
type candidate struct {
	source dataplane.CompletionSource
	open   func(q *queuePair, e *endpoint) (c census, mode string, err error)
}

// candidates are the sources that the configuration allows, best first.
func (q *queuePair) candidates() []candidate {
	all := []candidate{
		{dataplane.SourceCompCntr, openCompCntrs},
		{dataplane.SourceCollapsedCQ, refuseCollapsed},
		{dataplane.SourceCQRing, openRing},
		{dataplane.SourcePollCQ, openPoll},
	}
	switch {
	case q.cfg.Source != dataplane.SourceAuto:
		all = slices.DeleteFunc(all, func(c candidate) bool { return c.source != q.cfg.Source })
	case len(q.tallies) == 0:
		all = all[len(all)-1:] // there is nothing to count
	}
	return all
}

// What counts, as dataplane.Source has it in Mode: by the words of dataplane.CompletionSource,
// with an addition where the device writes into the mirror.
const (
	sourceCompCntr = string(dataplane.SourceCompCntr)
	sourceExternal = sourceCompCntr + "+external"
	sourceRing     = string(dataplane.SourceCQRing)
	sourcePoll     = string(dataplane.SourcePollCQ)
)

// choose makes the queue pair with the first source that takes it, and keeps why the others
// do not. A counter that was attached is not detached again, so each gets a fresh one.
func (q *queuePair) choose(e *endpoint) error {
	var errs []error
	e.polled = slices.Clone(q.totals)
	for _, c := range q.candidates() {
		err := q.queues(e)
		if err != nil {
			return err
		}
		if e.census, e.mode, err = c.open(q, e); err == nil {
			return nil
		}
		e.reject(string(c.source), err)
		errs = append(errs, fmt.Errorf("%s: %w", c.source, err))
		if err := e.unqueue(); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: %w", dataplane.ErrUnplaced, errors.Join(errs...))
}

func (e *endpoint) reject(word string, err error) {
	e.rejected = append(e.rejected, dataplane.Rejection{Backend: word, Reason: backend.ReasonOf(err)})
}

// local is nil unless the queue pair is to count operations of its peer, which leave no completion
// in a queue here.
func (q *queuePair) local() error {
	for op, i := range q.feeds {
		if word := dataplane.Operations()[op]; i >= 0 && word.Remote() {
			return &probe.UnsupportedError{
				Feature: "counting " + string(word), Object: q.cfg.Device,
				Reason: "an operation of the peer leaves no completion in a queue here",
				Fix:    "use a device that has completion counters of it (EFA, rdma-core 65), or count it at the peer",
			}
		}
	}
	return nil
}

// refuseCollapsed: what libibverbs makes a queue pair with is a completion queue of its own making.
func refuseCollapsed(q *queuePair, _ *endpoint) (census, string, error) {
	if err := q.local(); err != nil {
		return nil, "", err
	}
	return nil, "", &probe.UnsupportedError{
		Feature: "a collapsed completion queue", Object: q.cfg.Device,
		Reason: "firmware makes one by DevX alone (CREATE_CQ with cc and oi), and ibv_create_qp takes only completion queues of ibv_create_cq",
		Fix:    "use source cq_ring, which reads the entries of an mlx5 completion queue where the device wrote them, or auto",
	}
}

// pollCensus counts what ibv_poll_cq took off: every device has it.
type pollCensus struct{ feeds *feeding }

func openPoll(q *queuePair, _ *endpoint) (census, string, error) {
	if err := q.local(); err != nil {
		return nil, "", err
	}
	return pollCensus{&q.feeds}, sourcePoll, nil
}

func (c pollCensus) count(done []ibv.WC, totals []backend.Pair, _ int64, _ bool) (bool, error) {
	for i := range done {
		c.feeds.add(totals, opOf(done[i].WRID), done[i].Status == ibv.WCSuccess)
	}
	return true, nil
}

func (pollCensus) leave() error { return nil }
func (pollCensus) Close() error { return nil }

// lateCensus is ibv_poll_cq in the place of a census that failed. That one may have counted
// what is yet to be taken off: polled, the totals without it, catch up first.
type lateCensus struct {
	feeds  *feeding
	polled []backend.Pair
}

func (c lateCensus) count(done []ibv.WC, totals []backend.Pair, at int64, last bool) (bool, error) {
	_, err := (pollCensus{c.feeds}).count(done, c.polled, at, last)
	atLeast(totals, c.polled)
	return true, err
}

func (lateCensus) leave() error { return nil }
func (lateCensus) Close() error { return nil }

// atLeast raises totals to what is known without a census: what was taken off.
func atLeast(totals, polled []backend.Pair) {
	for i, p := range polled {
		totals[i] = backend.Pair{Packets: max(totals[i].Packets, p.Packets), Bytes: max(totals[i].Bytes, p.Bytes)}
	}
}

// feeding says by operation which of a queue pair's totals counts it; -1: none.
type feeding [operations]int8

// add counts one completion of op, or one in error.
func (f *feeding) add(totals []backend.Pair, op int, ok bool) {
	switch i := f[op]; {
	case i < 0:
	case ok:
		totals[i].Packets++
	default:
		totals[i].Bytes++
	}
}
