package engine

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/times"
)

// pairSource is a source of completions, and a device of which it is the best.
type pairSource struct {
	mode string
	nic  func(*testing.T) *softNIC
}

// The host's libraries have completion counters from rdma-core 65 on, and those of an EFA alone.
var pairSources = []pairSource{
	{"comp_cntr+external", newShimmedNIC},
	{"comp_cntr", func(t *testing.T) *softNIC {
		s := newShimmedNIC(t)
		s.Env.Without = []string{"efadv"}
		return s
	}},
	{"cq_ring", newSoftNIC},
	{"poll_cq", func(t *testing.T) *softNIC {
		s := newSoftNIC(t)
		s.Config.RDMA.MLX5 = "/nonexistent/libmlx5.so.1"
		return s
	}},
}

// nicThatFails is a device whose kernel refuses a call, or whose libraries refuse a verb that reads and writes memory alone.
func nicThatFails(t *testing.T, call string) *softNIC {
	t.Helper()
	if strings.HasPrefix(call, "ibv_") {
		return newShimmedNIC(t)
	}
	return newSoftNIC(t)
}

// eachPairSource runs a test for every source, with a device of which it is the best. The short form leaves out
// the sources in the middle.
func eachPairSource(t *testing.T, test func(t *testing.T, s *softNIC, mode string)) {
	for _, src := range times.Brief(pairSources, []pairSource{pairSources[0], pairSources[3]}) {
		t.Run(src.mode, func(t *testing.T) {
			test(t, src.nic(t), src.mode)
		})
	}
}

var local = []dataplane.Operation{dataplane.Send, dataplane.Recv, dataplane.RDMARead, dataplane.RDMAWrite}

// pairConfig is two queue pairs of a software device, a and b, connected, each with a counter per
// operation: "a-send".
func (s *softNIC) pairConfig(t *testing.T, ops ...dataplane.Operation) dataplane.Config {
	cfg := s.Config
	cfg.Interfaces = nil
	cfg.Mirror = dataplane.MirrorConfig{Path: filepath.Join(t.TempDir(), "t.mirror"), Counters: 64, History: -1}
	for _, name := range []string{"a", "b"} {
		q := dataplane.QueuePair{Name: name, Device: s.Device, SendDepth: 32, Receives: 64}
		for _, op := range ops {
			q.Counters = append(q.Counters, dataplane.CompletionCounter{Name: name + "-" + string(op), Operations: []dataplane.Operation{op}})
		}
		cfg.QueuePairs = append(cfg.QueuePairs, q)
	}
	cfg.QueuePairs[0].Connect = "b"
	return cfg
}

// newPairs starts an instance in the device's namespace.
func (s *softNIC) newPairs(t *testing.T, cfg dataplane.Config) (*Engine, error) {
	t.Helper()
	s.Env.Set(t.Setenv)
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	var e *Engine
	err := s.Wire.Near.NS.Do(func() (err error) {
		e, err = New(context.Background(), cfg, Options{Logger: log})
		return err
	})
	return e, err
}

func (s *softNIC) startPairs(t *testing.T, cfg dataplane.Config) *Engine {
	t.Helper()
	e, err := s.newPairs(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	endWith(t, e)
	return e
}

func mustPost(t *testing.T, e *Engine, name string, op dataplane.Operation, count int) {
	t.Helper()
	got, err := e.QueuePairs().Post(t.Context(), name, op, count)
	if err != nil || got != (dataplane.Posted{Completed: uint64(count)}) {
		t.Fatalf("posting %d %s on %s: %+v, %v", count, op, name, got, err)
	}
}

// awaitPolled waits until queue pairs have polled the completions before, and have posted again the receives
// that they used: counters of the device may show completions earlier than that. It posts one send
// or read on each, whose completion comes after those.
func awaitPolled(t *testing.T, e *Engine, op dataplane.Operation, names ...string) {
	t.Helper()
	for _, name := range names {
		mustPost(t, e, name, op, 1)
	}
}

// The modes of a completion source.
const (
	modeExternal = "comp_cntr+external"
	modeCompCntr = string(dataplane.SourceCompCntr)
	modeRing     = string(dataplane.SourceCQRing)
	modePoll     = string(dataplane.SourcePollCQ)
)

// ended returns the total of a completion counter.
func ended(completions, errors uint64) backend.Pair {
	return backend.Pair{Packets: completions, Bytes: errors}
}

func stateOf(t *testing.T, e *Engine, name string) dataplane.QueuePairState {
	t.Helper()
	all, err := e.QueuePairs().List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(s dataplane.QueuePairState) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("no queue pair %s among %+v", name, all)
	}
	return all[i]
}

// awaitOutstanding waits until that many operations of a queue pair are outstanding.
func awaitOutstanding(t *testing.T, e *Engine, name string, want int) {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		got := stateOf(t, e, name).Outstanding
		if got == want {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%d operations of %s are outstanding, want %d", got, name, want)
		}
	}
}

// awaitCondition waits until a condition about that object is there, or gone.
func awaitCondition(t *testing.T, e *Engine, code, object string, there bool) (found dataplane.Condition) {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		all, err := e.Conditions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(all, func(c dataplane.Condition) bool { return string(c.Code) == code && c.Object == object })
		if (i >= 0) == there {
			if there {
				found = all[i]
			}
			return found
		}
	}
	t.Fatalf("condition %s of %s: still not as wanted (there: %v)", code, object, there)
	return found
}

// TestEverySourceCountsTheSame: the mirror shows exactly the operations that are posted on a connected pair, on both
// sides and errors included, with each source. The device's best source counts, and the reasons against the better
// sources are kept.
func TestEverySourceCountsTheSame(t *testing.T) {
	order := dataplane.CompletionSources()[1:]
	eachPairSource(t, func(t *testing.T, s *softNIC, mode string) {
		cfg := s.pairConfig(t, local...)
		e := s.startPairs(t, cfg)

		a := stateOf(t, e, "a")
		if a.State != "RTS" || a.Source.String() != "rdma:"+s.Device+"/"+mode {
			t.Fatalf("queue pair a: %+v", a)
		}
		for i, word := range order[:slices.Index(order, dataplane.CompletionSource(strings.TrimSuffix(mode, "+external")))] {
			if i >= len(a.Rejected) || a.Rejected[i].Backend != string(word) || a.Rejected[i].Reason == "" {
				t.Errorf("%s is not rejected with a reason: %+v", word, a.Rejected)
			}
		}
		if b := stateOf(t, e, "b"); a.Peer != b.Local || b.Peer != a.Local {
			t.Errorf("a is connected to %v, b, which is %v, to %v", a.Peer, b.Local, b.Peer)
		}

		mustPost(t, e, "a", dataplane.Send, 1000)
		mustPost(t, e, "b", dataplane.Send, 300)
		mustPost(t, e, "a", dataplane.RDMAWrite, 500)
		mustPost(t, e, "b", dataplane.RDMARead, 77)
		want := map[string]backend.Pair{
			"a-send": {Packets: 1000}, "b-recv": {Packets: 1000}, "b-send": {Packets: 300}, "a-recv": {Packets: 300},
			"a-rdma_write": {Packets: 500}, "b-rdma_write": {}, "b-rdma_read": {Packets: 77}, "a-rdma_read": {},
		}
		wantTotals(t, cfg.Mirror.Path, want)
		awaitPolled(t, e, dataplane.RDMARead, "a", "b")
		want["a-rdma_read"], want["b-rdma_read"] = ended(1, 0), ended(78, 0)

		// A key that the peer has not given: the first write ends with REM_ACCESS_ERR and takes
		// the queue pair to ERR, and every outstanding operation is flushed, receives included.
		wrong := a.Peer
		wrong.RKey ^= 0x5a5a
		if err := e.QueuePairs().Connect(t.Context(), "a", wrong); err != nil {
			t.Fatal(err)
		}
		want["a-recv"] = ended(300, 64) // those that were posted when it was connected anew
		wantTotals(t, cfg.Mirror.Path, want)
		if err := e.QueuePairs().Connect(t.Context(), "b", stateOf(t, e, "a").Local); err != nil {
			t.Fatal(err)
		}
		want["b-recv"] = ended(1000, 64)
		got, err := e.QueuePairs().Post(t.Context(), "a", dataplane.RDMAWrite, 1000)
		if !errors.Is(err, dataplane.ErrNotConnected) || got.Completed != 0 || got.Errors == 0 || got.Errors > 32 {
			t.Fatalf("writing with a wrong key: %+v, %v", got, err)
		}
		want["a-rdma_write"] = ended(500, got.Errors)
		want["a-recv"], want["b-recv"] = ended(300, 128), ended(1000, 128) // b went to ERR too
		wantTotals(t, cfg.Mirror.Path, want)
		if got := stateOf(t, e, "a"); got.State != "ERR" || got.Outstanding != 0 {
			t.Errorf("a is in state %s with %d outstanding", got.State, got.Outstanding)
		}
		c := awaitCondition(t, e, "queue-pair-error", "a", true)
		if !strings.Contains(c.Text, "remote access error") {
			t.Errorf("the condition does not say why: %s", c.Text)
		}
		if _, err := e.QueuePairs().Post(t.Context(), "a", dataplane.Send, 1); !errors.Is(err, dataplane.ErrNotConnected) {
			t.Errorf("posting in state ERR: %v", err)
		}

		// As the configuration has it, both ends anew; the totals go on.
		lab.Step(t, c.Fix, "connect it anew: flowtally queue-pairs connect …")
		if err := e.QueuePairs().Connect(t.Context(), "a", dataplane.QueuePairAddress{}); err != nil {
			t.Fatal(err)
		}
		awaitCondition(t, e, "queue-pair-error", "a", false)
		mustPost(t, e, "a", dataplane.RDMAWrite, 40)
		mustPost(t, e, "b", dataplane.Send, 200)
		want["a-rdma_write"] = ended(540, got.Errors)
		want["b-send"], want["a-recv"] = ended(500, 0), ended(500, 128)
		wantTotals(t, cfg.Mirror.Path, want)
	})
}
