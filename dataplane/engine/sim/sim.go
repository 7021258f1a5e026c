// Package sim is a backend that needs no kernel and no privilege. It serves tests, demonstrations and first steps with
// the mirror.
package sim

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
)

// Flow number n, from 1, counts n times packetsPerSecond.
const (
	packetsPerSecond = 1000
	packetBytes      = 64
)

// Backend computes the counts of its flows from the time. It implements backend.Backend.
type Backend struct {
	now    func() time.Duration // since some fixed moment; tests hand in their own
	cookie uint64

	mu   sync.Mutex
	next uint32
	ids  map[string]uint32 // by flow name
	at   []counter         // by ID
}

type counter struct {
	start time.Duration
	rate  uint64 // packets per second
}

// New returns a backend without flows. now is its clock; nil is the time since New.
func New(now func() time.Duration) *Backend {
	if now == nil {
		t0 := time.Now()
		now = func() time.Duration { return time.Since(t0) }
	}
	return &Backend{now: now, cookie: rand.Uint64() | 1, ids: make(map[string]uint32)}
}

func (s *Backend) Name() string { return "sim" }

func (s *Backend) Install(_ context.Context, flows []backend.Placed) ([]backend.Installed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]backend.Installed, len(flows))
	for i, f := range flows {
		id := s.next
		s.next++
		s.ids[f.Name] = id
		s.at = append(s.at, counter{start: s.now(), rate: uint64(id+1) * packetsPerSecond})
		out[i] = backend.Installed{
			ID: id, Cookie: s.cookie + uint64(id), Basis: "l2",
			Source: dataplane.Source{Backend: "sim"},
		}
	}
	return out, nil
}

func (s *Backend) Remove(_ context.Context, flows []backend.Placed) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range flows {
		delete(s.ids, f.Name)
	}
	return nil
}

func (s *Backend) RemoveStale(context.Context) error { return nil }

func (s *Backend) Read(ids []uint32, dst []backend.Pair) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for i, id := range ids {
		c := &s.at[id]
		p := uint64((now - c.start).Microseconds()) * c.rate / 1e6
		dst[i] = backend.Pair{Packets: p, Bytes: p * packetBytes}
	}
	return nil
}

func (s *Backend) Source(backend.Placed) dataplane.Source { return dataplane.Source{Backend: "sim"} }
func (s *Backend) Conditions() []dataplane.Condition      { return nil }
func (s *Backend) Changed() <-chan struct{}               { return nil }
func (s *Backend) Close(bool) error                       { return nil }
