// Package sim is a backend without packets: its counts rise with the time. It needs no kernel and no privilege, so we use it in
// tests, demonstrations and first steps with the mirror.
package sim

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
)

// The flow with ID n counts (n+1) * packetsPerSecond, so a reader can tell the flows apart by their rates.
const (
	packetsPerSecond = 1000
	packetBytes      = 64
)

// Backend computes the counts of its flows from the time. It implements backend.Backend.
type Backend struct {
	now    func() time.Duration // since a fixed moment
	cookie uint64               // of ID 0; random, because no total goes on after a restart

	mu   sync.Mutex
	next uint32
	ids  map[string]uint32 // by flow name
	at   []counter         // by ID; a removed flow keeps its element, which the poller may still read
}

type counter struct {
	start time.Duration
	rate  uint64 // packets per second
}

// packets returns the count at a time. It multiplies seconds and microseconds apart: their sum times the rate of a late flow
// does not fit 64 bits after some days.
func (c *counter) packets(now time.Duration) uint64 {
	ran := now - c.start
	seconds := uint64(ran / time.Second)
	rest := uint64((ran % time.Second).Microseconds())
	return seconds*c.rate + rest*c.rate/1e6
}

// New returns a backend without flows. Tests pass a clock of their own as now; nil is the time since New.
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
		p := s.at[id].packets(now)
		dst[i] = backend.Pair{Packets: p, Bytes: p * packetBytes}
	}
	return nil
}

func (s *Backend) Source(backend.Placed) dataplane.Source { return dataplane.Source{Backend: "sim"} }
func (s *Backend) Conditions() []dataplane.Condition      { return nil }
func (s *Backend) Changed() <-chan struct{}               { return nil }
func (s *Backend) Close(bool) error                       { return nil }
