//go:build releases

package rdmacore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/shm/shmtest"
)

// TestKernelQueuePairsCountThePostedOperations has an instance post RC operations over the real libmlx5 of each
// release, and count them by each source: the values in the mirror are the posted operations, errors among them.
func TestKernelQueuePairsCountThePostedOperations(t *testing.T) {
	overKernel(t, ibvtest.Env{}, Suites(), func(t *testing.T) {
		for _, c := range []struct {
			source dataplane.CompletionSource
			mode   string
			count  int // of each kind of operation
		}{
			{dataplane.SourceCollapsedCQ, "collapsed_cq", 100_000},
			{dataplane.SourceCQRing, "cq_ring", 100_000},
			{dataplane.SourcePollCQ, "poll_cq", 100_000},
			{dataplane.SourceAuto, "cq_ring", 10_000},
		} {
			if testing.Short() {
				c.count /= 50
			}
			start := time.Now()
			got := postAll(t, c.source, c.mode, c.count)
			t.Logf("source %s, counted by %s, %v: %s", c.source, c.mode, time.Since(start).Round(time.Millisecond), got)
		}
	})
}

// postAll runs an instance with two connected queue pairs, posts count operations of each kind, and then writes that the
// peer refuses. It compares the mirror with the results of posting, and returns the values of the mirror.
func postAll(t *testing.T, source dataplane.CompletionSource, mode string, count int) string {
	const depth, receives = 128, 256
	cfg := dataplane.Config{
		Instance: "pairs", Backend: flow.Sim, Mirror: dataplane.MirrorConfig{Path: filepath.Join(t.TempDir(), "pairs.mirror")},
		Poll: dataplane.PollConfig{Period: 5 * time.Millisecond},
	}
	for _, name := range []string{"near", "far"} {
		q := dataplane.QueuePair{Name: name, Device: "mlx5_0", Source: source, SendDepth: depth, Receives: receives, MessageSize: 256}
		for _, op := range []dataplane.Operation{dataplane.Send, dataplane.Recv, dataplane.RDMAWrite, dataplane.RDMARead} {
			q.Counters = append(q.Counters, dataplane.CompletionCounter{Name: name + "-" + string(op), Operations: []dataplane.Operation{op}})
		}
		cfg.QueuePairs = append(cfg.QueuePairs, q)
	}
	cfg.QueuePairs[0].Connect = "far"
	e, err := engine.New(context.Background(), cfg, engine.Options{Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	pairs := e.QueuePairs()
	states, err := pairs.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range states {
		if got := string(q.Source.Devices[0].Mode); got != mode || q.State != "RTS" {
			t.Fatalf("%s is in state %s and counted by %s, want RTS and %s: %+v", q.Name, q.State, got, mode, q.Rejected)
		}
	}
	n := uint64(count)
	for _, op := range []dataplane.Operation{dataplane.Send, dataplane.RDMAWrite, dataplane.RDMARead} {
		p, err := pairs.Post(t.Context(), "near", op, count)
		if err != nil || p != (dataplane.Posted{Completed: n}) {
			t.Fatalf("%d %s ended as %+v: %v", count, op, p, err)
		}
	}
	// A write with another key fails, and so do the operations behind it and the receives of both ends. Connecting the ends
	// anew, near with that key, flushes their receives once before.
	far, near := states[0].Local, states[1].Local // the list is ordered by name
	far.RKey ^= 0x10000
	if err := errors.Join(pairs.Connect(t.Context(), "near", far), pairs.Connect(t.Context(), "far", near)); err != nil {
		t.Fatal(err)
	}
	failed, err := pairs.Post(t.Context(), "near", dataplane.RDMAWrite, count)
	if !errors.Is(err, dataplane.ErrNotConnected) || failed.Completed != 0 || failed.Errors < 1 || failed.Errors > depth {
		t.Fatalf("writes that the peer refuses ended as %+v: %v", failed, err)
	}
	// Behind the error the one entry of a collapsed queue may show only the last of the flushed writes.
	unknown := mode == "collapsed_cq" && failed.Errors < depth
	if said := strings.Contains(err.Error(), fmt.Sprintf("results of %d operations are unknown", depth-failed.Errors)); said != unknown {
		t.Errorf("by %s %d of %d writes failed, and the error is: %v", mode, failed.Errors, depth, err)
	}
	want := map[string][2]uint64{
		"near-send": {n, 0}, "near-recv": {0, 2 * receives}, "near-rdma_write": {n, failed.Errors}, "near-rdma_read": {n, 0},
		"far-send": {}, "far-recv": {n, 2 * receives}, "far-rdma_write": {}, "far-rdma_read": {},
	}
	r := shmtest.MustOpen(t, cfg.Mirror.Path)
	values := func() map[string][2]uint64 {
		got := make(map[string][2]uint64)
		for name := range want {
			counter, err := r.Counter(shmtest.MustLookup(t, r, name))
			if err != nil {
				t.Fatal(err)
			}
			v, err := counter.Load()
			if err != nil {
				t.Fatal(err)
			}
			got[name] = [2]uint64{v.Packets, v.Bytes}
		}
		return got
	}
	t.Cleanup(func() {
		if got := values(); t.Failed() {
			t.Errorf("by %s the mirror has %v, want %v", mode, got, want)
		}
	})
	lab.Eventually(t, "the values of "+string(source), func() bool { return maps.Equal(values(), want) })
	if after, err := pairs.List(t.Context()); err != nil {
		t.Fatal(err)
	} else if got := string(after[1].Source.Devices[0].Mode); got != mode {
		t.Errorf("counted by %s in the end, want %s: %+v", got, mode, after[1].Rejected)
	}
	entries, err := r.Entries()
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		declared := entry.Continuity.Discontinuities
		if lacks := unknown && entry.Name == "near-rdma_write"; lacks != (declared > 0) {
			t.Errorf("by %s %s has %d discontinuities", mode, entry.Name, declared)
		}
	}
	return fmt.Sprint(want)
}
