package words

import (
	"errors"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
)

// entryOf returns the mirror's entry of reserved words.
func entryOf(name string) shm.Entry {
	return shm.Entry{Name: name, Kind: shm.KindCompletion, Unit: "completions", Text: "reserved words"}
}

// basis is the byte basis of the counters, which names their second value.
const basis = "errors"

// source returns the source of the counter, whose mode tells the state of the words.
func (r *reservation) source() dataplane.Source {
	mode := map[dataplane.WordsState]dataplane.Mode{
		dataplane.WordsFree:      dataplane.ModeWordsFree,
		dataplane.WordsTaken:     dataplane.ModeWords,
		dataplane.WordsAbandoned: dataplane.ModeWordsAbandoned,
	}[r.state]
	return dataplane.Source{
		Backend: flow.RDMA,
		Devices: []dataplane.Device{{Backend: flow.RDMA, Name: "own", Mode: mode}},
	}
}

// show writes the state of a reservation to the mirror. The caller holds mu.
func (s *Set) show(r *reservation) {
	taken := r.state == dataplane.WordsTaken
	err := errors.Join(
		s.opts.Mirror.SetSource(r.handle, r.source().String(), basis),
		s.opts.Mirror.SetFlags(r.handle, taken, !taken, false),
		s.opts.Mirror.SetContinuity(r.handle, r.continuity))
	if err != nil {
		s.opts.Logger.Error("showing the state of reserved words in the mirror", "counter", r.name, "err", err)
	}
}

// setState changes the state of a reservation and announces it. unknown is as in announce. The caller holds mu.
func (s *Set) setState(r *reservation, state dataplane.WordsState, text string, unknown bool) {
	r.state = state
	r.since = time.Now()
	r.backwards = false
	r.held.Store(state == dataplane.WordsTaken)
	s.announce(r, text, unknown)
}

// announce writes the state of a reservation to the mirror and publishes an event. unknown says that operations may be uncounted.
// The caller holds mu.
func (s *Set) announce(r *reservation, text string, unknown bool) {
	s.show(r)
	s.opts.Publish(dataplane.Event{
		Kind:      dataplane.SourceChanged,
		Object:    r.name,
		Text:      r.source().String() + ": " + text,
		Uncounted: dataplane.Uncounted{Unknown: unknown},
	})
}

// Entries returns the mirror's entries of the counters.
func (s *Set) Entries() (out []shm.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.byName {
		e := entryOf(r.name)
		e.Handle = r.handle
		e.Continuity = r.continuity
		e.Source = r.source().String()
		e.ByteBasis = basis
		e.Valid = r.state == dataplane.WordsTaken
		e.Stale = !e.Valid
		out = append(out, e)
	}
	return out
}

// WriteAgain writes the state of every counter again, to a mirror that was made anew.
func (s *Set) WriteAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.byName {
		s.show(r)
	}
}
