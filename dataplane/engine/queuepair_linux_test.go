package engine

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/shm"
)

// pairConfig is two queue pairs of a software device, connected, each with a counter per kind of operation.
func (s *softNIC) pairConfig(t *testing.T, source string) dataplane.Config {
	cfg := s.cfg
	cfg.Interfaces = nil
	cfg.Mirror = dataplane.MirrorConfig{Path: filepath.Join(t.TempDir(), "t.mirror"), Counters: 64, History: -1}
	for _, name := range []string{"a", "b"} {
		q := dataplane.QueuePair{Name: name, Device: s.device, Source: source, SendDepth: 32, Receives: 64}
		for _, op := range []dataplane.Operation{dataplane.Send, dataplane.Recv, dataplane.RDMARead, dataplane.RDMAWrite} {
			q.Counters = append(q.Counters, dataplane.CompletionCounter{Name: name + "-" + string(op), Operations: []dataplane.Operation{op}})
		}
		cfg.QueuePairs = append(cfg.QueuePairs, q)
	}
	cfg.QueuePairs[0].Connect = "b"
	return cfg
}

// startPairs starts an instance in the device's namespace.
func (s *softNIC) startPairs(t *testing.T, cfg dataplane.Config) *Engine {
	t.Helper()
	s.env.Set(t.Setenv)
	var e *Engine
	if err := s.wire.Near.NS.Do(func() (err error) {
		e, err = New(context.Background(), cfg, Options{Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// wantTotals waits until the mirror shows these totals.
func wantTotals(t *testing.T, path string, want map[string]Pair) {
	t.Helper()
	r, err := shm.Open(path, shm.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got := make(map[string]Pair)
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
		right := true
		for name, w := range want {
			h, err := r.Lookup(name)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			c, err := r.Counter(h)
			if err != nil {
				t.Fatal(err)
			}
			v, err := c.Load()
			if err != nil {
				t.Fatal(err)
			}
			got[name] = Pair{Packets: v.Packets, Bytes: v.Bytes}
			right = right && got[name] == w && v.SampledAt != 0
		}
		if right {
			return
		}
	}
	for name, w := range want {
		if got[name] != w {
			t.Errorf("%s: the mirror shows %d completions and %d errors, want %d and %d", name, got[name].Packets, got[name].Bytes, w.Packets, w.Bytes)
		}
	}
	t.FailNow()
}

// TestQueuePairsCountWhatIsPosted: what is posted on a connected pair is what the mirror shows, on
// both sides, whatever the source.
func TestQueuePairsCountWhatIsPosted(t *testing.T) {
	for _, source := range []string{"poll_cq", "comp_cntr"} {
		t.Run(source, func(t *testing.T) {
			s := newSoftNIC(t)
			cfg := s.pairConfig(t, source)
			e := s.startPairs(t, cfg)
			for _, p := range []struct {
				name  string
				op    dataplane.Operation
				count int
			}{{"a", dataplane.Send, 1000}, {"b", dataplane.Send, 300}, {"a", dataplane.RDMAWrite, 500}, {"b", dataplane.RDMARead, 77}} {
				got, err := e.PostOperations(t.Context(), p.name, p.op, p.count)
				if err != nil || got != (dataplane.Posted{Completed: uint64(p.count)}) {
					t.Fatalf("%s of %d: %+v, %v", p.op, p.count, got, err)
				}
			}
			wantTotals(t, cfg.Mirror.Path, map[string]Pair{
				"a-send": {Packets: 1000}, "b-recv": {Packets: 1000}, "b-send": {Packets: 300}, "a-recv": {Packets: 300},
				"a-rdma_write": {Packets: 500}, "b-rdma_write": {}, "b-rdma_read": {Packets: 77}, "a-rdma_read": {},
			})
		})
	}
}
