package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/shm"
)

// show tells others what the queue pair is now, and readers of the mirror what counts it.
func (q *queuePair) show() {
	e := q.end
	v := view{lost: q.gone}
	if e != nil {
		v.state, v.local, v.peer, v.rejected = e.state.String(), e.local, q.peer, slices.Clone(e.rejected)
		if len(q.tallies) > 0 {
			v.source = dataplane.Source{Backend: flow.RDMA, Devices: []dataplane.Device{{Backend: flow.RDMA, Name: q.cfg.Device, Mode: dataplane.Mode(e.mode)}}}
		}
		switch {
		case e.loose != nil:
			v.loose = fmt.Sprintf("it is in state %v, without a peer: %v", e.state, e.loose)
		case (e.state == ibv.QPSErr || e.state == ibv.QPSSQE) && !e.renewing:
			v.trouble = fmt.Sprintf("it is in state %v: %v", e.state, e.fault)
		}
		v.broken = e.broken
	}
	v.made = e
	// Readers of the mirror see it first: who is told of a loss finds the counters standing still.
	q.marking.Lock()
	defer q.marking.Unlock()
	if was := q.look(); !v.source.Equal(was.source) || (v.lost == nil) != (was.lost == nil) {
		q.mark(v)
	}
	q.mu.Lock()
	q.view = v
	q.mu.Unlock()
	select {
	case q.set.changed <- struct{}{}:
	default: // one is pending
	}
}

// mark shows in the mirror what counts, and whether it does.
func (q *queuePair) mark(v view) {
	lost := v.lost != nil
	for _, t := range q.tallies {
		err := errors.Join(
			q.set.mirror.SetSource(t.handle, v.source.String(), completionBasis),
			q.set.mirror.SetFlags(t.handle, !lost, lost, false))
		if err != nil {
			q.log.Error("showing the source of a completion counter in the mirror", "counter", t.cfg.Name, "err", err)
		}
	}
}

// entries returns the entries of the completion counters, for Engine.entries.
func (s *queuePairs) entries() (out []shm.Entry) {
	if s == nil {
		return nil
	}
	for _, q := range s.all {
		v := q.look()
		for _, t := range q.tallies {
			q.mu.Lock()
			past := t.past
			q.mu.Unlock()
			e := q.entryOf(t)
			e.Handle, e.Continuity = t.handle, past
			e.Source, e.ByteBasis, e.Valid, e.Stale = v.source.String(), completionBasis, v.lost == nil, v.lost != nil
			out = append(out, e)
		}
	}
	return out
}

// markAll shows everything again in a mirror that was made anew while queue pairs went on.
func (s *queuePairs) markAll() {
	if s == nil {
		return
	}
	for _, q := range s.all {
		q.markAgain()
	}
}

// markAgain shows in the mirror what show and interrupt may have written to the file before it.
func (q *queuePair) markAgain() {
	q.marking.Lock()
	defer q.marking.Unlock()
	q.mark(q.look())
	for _, t := range q.tallies {
		q.mu.Lock()
		past := t.past
		q.mu.Unlock()
		if err := q.set.mirror.SetContinuity(t.handle, past); err != nil {
			q.log.Error("noting a discontinuity in the mirror", "counter", t.cfg.Name, "err", err)
		}
	}
}

// interrupt notes in the mirror that completions may have been missed, and tells why. Of what is
// posted here all is known when nothing of it is outstanding; ended says that. Of what the peer
// sends, reads and writes nothing is: it may have been on its way, and a device that is gone is not
// asked what it had received last.
func (q *queuePair) interrupt(why string, ended bool) {
	q.marking.Lock()
	defer q.marking.Unlock()
	for _, t := range q.tallies {
		if ended && t.ours() {
			continue
		}
		q.mu.Lock()
		t.past.Discontinuities++
		past := t.past
		q.mu.Unlock()
		if err := q.set.mirror.SetContinuity(t.handle, past); err != nil {
			q.log.Error("noting a discontinuity in the mirror", "counter", t.cfg.Name, "err", err)
		}
		q.set.tell(dataplane.Event{
			Kind: dataplane.SourceChanged, Object: t.cfg.Name, Uncounted: dataplane.Uncounted{Unknown: true},
			Text: fmt.Sprintf("queue pair %s: %s; completions may have passed uncounted", q.cfg.Name, why),
		})
	}
}

func (q *queuePair) look() view {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.view
}

// states describes the queue pairs, in the order of their names.
func (s *queuePairs) states() []dataplane.QueuePairState {
	if s == nil {
		return nil
	}
	out := make([]dataplane.QueuePairState, 0, len(s.all))
	for _, q := range s.all {
		v := q.look()
		st := dataplane.QueuePairState{
			Name: q.cfg.Name, Device: q.cfg.Device, Type: q.cfg.Type, Port: q.cfg.Port,
			State: v.state, Local: v.local, Peer: v.peer, Source: v.source, Rejected: v.rejected,
			Outstanding: int(q.outstanding.Load()),
		}
		for _, t := range q.tallies {
			st.Counters = append(st.Counters, dataplane.CountedOperations{
				CompletionCounter: t.cfg, Counter: t.handle,
			})
		}
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b dataplane.QueuePairState) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// conditions lists what is not as it should be.
func (s *queuePairs) conditions() (out []dataplane.Condition) {
	if s == nil {
		return nil
	}
	for _, q := range s.all {
		v := q.look()
		if v.lost != nil {
			out = append(out, dataplane.Condition{
				Code: dataplane.CodeQueuePairLost, Severity: dataplane.High, Object: q.cfg.Name,
				Text: fmt.Sprintf("its device %s failed or was removed, and its counters stand still: %v", q.cfg.Device, v.lost),
				Fix:  "see dmesg and `rdma link`; when the device is back the queue pair is made again, with another number, and totals go on",
			})
			continue
		}
		if v.loose != "" {
			out = append(out, dataplane.Condition{
				Code: dataplane.CodeQueuePairUnconnected, Severity: dataplane.High, Object: q.cfg.Name, Text: v.loose,
				Fix: "remove the cause that the text names, then: flowtally queue-pairs connect " + q.cfg.Name + " [ADDRESS]",
			})
		}
		if v.trouble != "" {
			out = append(out, dataplane.Condition{
				Code: dataplane.CodeQueuePairError, Severity: dataplane.High, Object: q.cfg.Name, Text: v.trouble,
				Fix: "look after the peer, then connect it anew: flowtally queue-pairs connect " + q.cfg.Name,
			})
		}
		if v.broken != nil {
			out = append(out, dataplane.Condition{
				Code: dataplane.CodeQueuePairSource, Severity: dataplane.Medium, Object: q.cfg.Name,
				Text: fmt.Sprintf("ibv_poll_cq counts it, as the better source failed: %v", v.broken),
				Fix:  "restart the instance; report the device if it happens again",
			})
		}
	}
	return out
}
