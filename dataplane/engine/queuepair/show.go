package queuepair

import (
	"errors"
	"fmt"

	"github.com/flowtally/flowtally/dataplane"
)

// completionUnit and completionBasis describe the two values of a completion counter in the mirror.
const (
	completionUnit  = "completions"
	completionBasis = "errors"
)

// current returns a copy of the newest view.
func (q *queuePair) current() view {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.view
}

// setView publishes v. The mirror comes first, so whoever learns of a loss from v finds the counters
// marked as stale already.
func (q *queuePair) setView(v view) {
	q.mirrorMu.Lock()
	defer q.mirrorMu.Unlock()

	if was := q.current(); !v.source.Equal(was.source) || (v.lost == nil) != (was.lost == nil) {
		q.writeSource(v)
	}
	q.mu.Lock()
	q.view = v
	q.mu.Unlock()

	select {
	case q.set.changed <- struct{}{}:
	default: // a signal is pending already
	}
}

// writeSource writes the source of the counters, and whether they are stale, to the mirror. The caller
// holds mirrorMu.
func (q *queuePair) writeSource(v view) {
	lost := v.lost != nil
	for _, c := range q.counters {
		err := errors.Join(
			q.set.opts.Mirror.SetSource(c.handle, v.source.String(), completionBasis),
			q.set.opts.Mirror.SetFlags(c.handle, !lost, lost, false))
		if err != nil {
			q.log.Error("showing the source of a completion counter in the mirror", "counter", c.cfg.Name, "err", err)
		}
	}
}

// writeContinuity writes the continuity of a counter to the mirror. The caller holds mirrorMu.
func (q *queuePair) writeContinuity(c *counter) {
	q.mu.Lock()
	continuity := c.continuity
	q.mu.Unlock()
	if err := q.set.opts.Mirror.SetContinuity(c.handle, continuity); err != nil {
		q.log.Error("noting a discontinuity in the mirror", "counter", c.cfg.Name, "err", err)
	}
}

// writeAgain is [Set.WriteAgain] for one queue pair.
func (q *queuePair) writeAgain() {
	q.mirrorMu.Lock()
	defer q.mirrorMu.Unlock()
	q.writeSource(q.current())
	for _, c := range q.counters {
		q.writeContinuity(c)
	}
}

// declareUnknown declares a discontinuity of the counters of operations that ended with an unknown result: they are in
// neither value. It publishes an event with their number.
func (q *queuePair) declareUnknown(unknown [operations]uint64) {
	if unknown == ([operations]uint64{}) {
		return
	}
	missing := make([]uint64, len(q.counters))
	for op, n := range unknown {
		if i := q.index[op]; i >= 0 {
			missing[i] += n
		}
	}

	q.mirrorMu.Lock()
	defer q.mirrorMu.Unlock()
	for i, c := range q.counters {
		if missing[i] == 0 {
			continue
		}
		q.mu.Lock()
		c.continuity.Discontinuities++
		q.mu.Unlock()
		q.writeContinuity(c)
		q.set.opts.Publish(dataplane.Event{
			Kind:      dataplane.SourceChanged,
			Object:    c.cfg.Name,
			Uncounted: dataplane.Uncounted{Unknown: true},
			Text:      fmt.Sprintf("queue pair %s: an error overwrote the results of %d operations in the collapsed completion queue; they are counted neither as completions nor as errors", q.cfg.Name, missing[i]),
		})
	}
}

// interrupt declares a discontinuity of every counter that may have missed completions, and publishes an
// event with the reason. With allEnded none of our operations was outstanding, so counters of only these
// have missed nothing. Counters of the peer's operations may always have missed some.
func (q *queuePair) interrupt(why string, allEnded bool) {
	q.mirrorMu.Lock()
	defer q.mirrorMu.Unlock()
	for _, c := range q.counters {
		if allEnded && c.onlyPosted() {
			continue
		}

		q.mu.Lock()
		c.continuity.Discontinuities++
		q.mu.Unlock()
		q.writeContinuity(c)

		q.set.opts.Publish(dataplane.Event{
			Kind:      dataplane.SourceChanged,
			Object:    c.cfg.Name,
			Uncounted: dataplane.Uncounted{Unknown: true},
			Text:      fmt.Sprintf("queue pair %s: %s; completions may have passed uncounted", q.cfg.Name, why),
		})
	}
}
