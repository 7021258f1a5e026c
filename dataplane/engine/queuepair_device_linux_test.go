package engine

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/probe"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/shm/shmtest"
)

// discontinuities of a counter, and whether its source is shown as counting.
func discontinuities(t *testing.T, path, name string) (n uint64, valid bool) {
	t.Helper()
	r := shmtest.MustOpen(t, path)
	e, err := r.Entry(shmtest.MustLookup(t, r, name))
	if err != nil {
		t.Fatal(err)
	}
	if e.Valid == e.Stale {
		t.Errorf("%s is shown as valid: %v, stale: %v", name, e.Valid, e.Stale)
	}
	return e.Continuity.Discontinuities, e.Valid
}

// wordsOf returns the values of the words that the device writes for a counter.
func wordsOf(t *testing.T, path, name string) (backend.Pair, error) {
	t.Helper()
	r := shmtest.MustOpen(t, path)
	d, err := r.Device(shmtest.MustLookup(t, r, name))
	if err != nil {
		return backend.Pair{}, err
	}
	comp, errs, err := d.Load()
	return ended(comp, errs), err
}

// wantWords compares the words with a total, where the device writes into the mirror.
func wantWords(t *testing.T, path, mode, name string, want backend.Pair) {
	t.Helper()
	got, err := wordsOf(t, path, name)
	switch {
	case mode != modeExternal:
		if !errors.Is(err, shm.ErrNoDevice) {
			t.Errorf("%s: words of a device say %+v, %v, and it is counted by %q", name, got, err, mode)
		}
	case got != want || err != nil:
		t.Errorf("%s: the words of the device say %+v, %v, want %+v", name, got, err, want)
	}
}

// Memory of a lost device reads on without an error, its driver sends no event, and it is still listed. A command that
// fails reveals the loss; the totals are shown as stale, not as current.
func TestADeviceThatIsLostSilentlyHasStaleTotals(t *testing.T) {
	eachPairSource(t, func(t *testing.T, s *softNIC, mode string) {
		control := s.Controlled(t)
		cfg := s.pairConfig(t, local...)
		e := s.startPairs(t, cfg)
		mustPost(t, e, "a", dataplane.Send, 500)
		want := map[string]backend.Pair{"a-send": ended(500, 0), "b-recv": ended(500, 0)}
		wantTotals(t, cfg.Mirror.Path, want)
		if err := control.Silent(s.Device); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "b"} {
			c := awaitCondition(t, e, "queue-pair-lost", name, true)
			if !strings.Contains(c.Text, "carries out no command") || !strings.Contains(c.Text, "ibv_query_qp") {
				t.Errorf("%s: %s", name, c.Text)
			}
			if _, valid := discontinuities(t, cfg.Mirror.Path, name+"-send"); valid {
				t.Errorf("%s-send is shown as counting", name)
			}
		}
		wantTotals(t, cfg.Mirror.Path, want)
		if err := control.Return(s.Device); err != nil {
			t.Fatal(err)
		}
		awaitCondition(t, e, "queue-pair-lost", "a", false)
		awaitCondition(t, e, "queue-pair-lost", "b", false)
		awaitLinked(t, e)
		if got := stateOf(t, e, "a").Source.Modes(); got != mode {
			t.Errorf("counted by %s now, by %s before", got, mode)
		}
	})
}

// TestAQueuePairOutlivesItsDevice: queue pairs are lost with their device, which is a condition. When the device is back
// they are made and connected again, and totals go on. A counter of messages from the peer has a discontinuity, a
// counter of posted operations has not, because none was outstanding.
func TestAQueuePairOutlivesItsDevice(t *testing.T) {
	eachPairSource(t, func(t *testing.T, s *softNIC, mode string) {
		control := s.Controlled(t)
		cfg := s.pairConfig(t, local...)
		e := s.startPairs(t, cfg)
		mustPost(t, e, "a", dataplane.Send, 500)
		want := map[string]backend.Pair{"a-send": ended(500, 0), "b-recv": ended(500, 0)}
		wantTotals(t, cfg.Mirror.Path, want)
		wantWords(t, cfg.Mirror.Path, mode, "a-send", ended(500, 0))
		first := stateOf(t, e, "a").Local

		if err := control.Remove(s.Device); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "b"} {
			c := awaitCondition(t, e, "queue-pair-lost", name, true)
			lab.Step(t, c.Fix, "when the device is back the queue pair is made again")
			if q := stateOf(t, e, name); q.State != "" || !q.Source.IsZero() || q.Local.QPN != 0 {
				t.Errorf("%s, whose device is gone: %+v", name, q)
			}
			if _, valid := discontinuities(t, cfg.Mirror.Path, name+"-send"); valid {
				t.Errorf("%s-send is shown as counting", name)
			}
		}
		if _, err := e.QueuePairs().Post(t.Context(), "a", dataplane.Send, 1); !errors.Is(err, dataplane.ErrNotConnected) {
			t.Errorf("posting without a device: %v", err)
		}
		for _, peer := range []dataplane.QueuePairAddress{first, {}} { // a given address, and the address of the configuration
			if err := e.QueuePairs().Connect(t.Context(), "a", peer); !errors.Is(err, dataplane.ErrNotConnected) {
				t.Errorf("connecting without a device to %v: %v", peer, err)
			}
		}
		wantTotals(t, cfg.Mirror.Path, want)
		wantWords(t, cfg.Mirror.Path, "", "a-send", backend.Pair{})

		if err := control.Return(s.Device); err != nil {
			t.Fatal(err)
		}
		awaitCondition(t, e, "queue-pair-lost", "a", false)
		awaitCondition(t, e, "queue-pair-lost", "b", false)
		awaitLinked(t, e)
		if got := stateOf(t, e, "a").Source.Modes(); got != mode {
			t.Errorf("counted by %s now, by %s before", got, mode)
		}
		// Connecting one end before the other is back may have flushed its receives.
		got := totalsFromNow(t, cfg.Mirror.Path, want)
		mustPost(t, e, "a", dataplane.Send, 250)
		mustPost(t, e, "b", dataplane.RDMARead, 9)
		want = map[string]backend.Pair{
			"a-send": ended(750, 0), "b-recv": ended(750, got["b-recv"].Bytes), "b-rdma_read": ended(9, 0), "a-rdma_read": ended(0, 0),
		}
		wantTotals(t, cfg.Mirror.Path, want)
		wantWords(t, cfg.Mirror.Path, mode, "a-send", ended(750, 0))
		for name, gaps := range map[string]uint64{"a-send": 0, "b-rdma_read": 0, "a-rdma_write": 0, "a-recv": 1, "b-recv": 1} {
			if n, valid := discontinuities(t, cfg.Mirror.Path, name); n != gaps || !valid {
				t.Errorf("%s: %d discontinuities, want %d; shown as counting: %v", name, n, gaps, valid)
			}
		}
	})
}

// TestCompletionTotalsGoOnOverARestart, with one discontinuity.
func TestCompletionTotalsGoOnOverARestart(t *testing.T) {
	s := newShimmedNIC(t)
	cfg := s.pairConfig(t, dataplane.Send, dataplane.Recv)
	want := make(map[string]backend.Pair)
	for run := range uint64(3) {
		e, err := s.newPairs(t, cfg)
		if err != nil {
			t.Fatal(err)
		}
		mustPost(t, e, "a", dataplane.Send, 100)
		want["a-send"], want["b-recv"] = ended(100*(run+1), 0), ended(100*(run+1), 0)
		wantWords(t, cfg.Mirror.Path, modeExternal, "a-send", want["a-send"])
		if run < 2 { // Close publishes the last cycle
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
		}
		wantTotals(t, cfg.Mirror.Path, want)
		if n, _ := discontinuities(t, cfg.Mirror.Path, "a-send"); n != run {
			t.Errorf("%d discontinuities after %d restarts", n, run)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAStartThatFailsLosesNoTotal, nor does a device of another name.
func TestAStartThatFailsLosesNoTotal(t *testing.T) {
	s := newSoftNIC(t)
	cfg := s.pairConfig(t, dataplane.Send)
	run := func(cfg dataplane.Config, total uint64) {
		t.Helper()
		e, err := s.newPairs(t, cfg)
		if err != nil {
			t.Fatal(err)
		}
		mustPost(t, e, "a", dataplane.Send, 100)
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		wantTotals(t, cfg.Mirror.Path, map[string]backend.Pair{"a-send": ended(total, 0)})
	}
	run(cfg, 100)
	for _, change := range []func(q *dataplane.QueuePair){
		func(q *dataplane.QueuePair) { q.Device = "nosuch0" },
		func(q *dataplane.QueuePair) { q.Device, q.Name, q.Connect = "nosuch0", q.Name+"x", "" }, // so that its entry is made anew
	} {
		wrong := cfg
		wrong.QueuePairs = slices.Clone(cfg.QueuePairs)
		for i := range wrong.QueuePairs {
			change(&wrong.QueuePairs[i])
		}
		if e, err := s.newPairs(t, wrong); err == nil {
			e.Close()
			t.Fatal("started on a device that does not exist")
		}
	}
	run(cfg, 200)
}

// TestReadersSeeTheWordsThatTheDeviceWrites, without the poller.
func TestReadersSeeTheWordsThatTheDeviceWrites(t *testing.T) {
	s := newShimmedNIC(t)
	cfg := s.pairConfig(t, local...)
	cfg.Poll.Period = time.Hour // nothing is published meanwhile
	e := s.startPairs(t, cfg)
	for _, step := range []int{1, 10, 1000} {
		mustPost(t, e, "a", dataplane.RDMAWrite, step)
	}
	wantWords(t, cfg.Mirror.Path, modeExternal, "a-rdma_write", ended(1011, 0))
}

// TestReadersLeaveTheWordsBeforeTheQueuePairGoes, also where its device cannot be closed.
func TestReadersLeaveTheWordsBeforeTheQueuePairGoes(t *testing.T) {
	s := newShimmedNIC(t)
	s.Env.Fail = []ibvtest.Fault{{Verb: "ibv_close_device", Errno: "EIO"}}
	cfg := s.pairConfig(t, dataplane.Send)
	e, err := s.newPairs(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	wantWords(t, cfg.Mirror.Path, modeExternal, "a-send", backend.Pair{})
	if err := e.Close(); err == nil || !strings.Contains(err.Error(), "ibv_close_device") {
		t.Errorf("closing a device that does not close: %v", err)
	}
	wantWords(t, cfg.Mirror.Path, "", "a-send", backend.Pair{})
}

// TestRemoteOperationsAreCountedByTheDeviceAlone, which has no completion for them.
func TestRemoteOperationsAreCountedByTheDeviceAlone(t *testing.T) {
	s := newShimmedNIC(t)
	cfg := s.pairConfig(t, dataplane.Operations()...)
	e := s.startPairs(t, cfg)
	mustPost(t, e, "a", dataplane.RDMAWrite, 70)
	mustPost(t, e, "a", dataplane.RDMARead, 30)
	wantTotals(t, cfg.Mirror.Path, map[string]backend.Pair{
		"a-rdma_write": ended(70, 0), "b-remote_rdma_write": ended(70, 0), "a-rdma_read": ended(30, 0), "b-remote_rdma_read": ended(30, 0),
		"b-rdma_write": {}, "a-remote_rdma_write": {},
	})
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	s.Env.Without = []string{"comp_cntr"}
	_, err := s.newPairs(t, cfg)
	if !errors.Is(err, dataplane.ErrUnplaced) || !errors.Is(err, probe.ErrNotSupported) || !strings.Contains(err.Error(), "leaves no completion") {
		t.Errorf("a device without completion counters: %v", err)
	}
}

// TestASourceThatIsNamedIsTheOnlyOneTried: the configuration names it.
func TestASourceThatIsNamedIsTheOnlyOneTried(t *testing.T) {
	for _, c := range []struct {
		source  dataplane.CompletionSource
		typ     dataplane.QueuePairType // "": rc
		without []string
		mlx5    string // path of libmlx5
		says    string // "": it counts
		fix     string // the next step
	}{
		{source: dataplane.SourceCompCntr, says: "ibv_query_comp_cntr_caps"},
		{source: dataplane.SourceCollapsedCQ, without: []string{"devx"}, says: "mlx5dv", fix: "source cq_ring"},
		{source: dataplane.SourceCollapsedCQ, typ: dataplane.UD, says: "type is ud", fix: "set `type` of the queue pair to rc, or use source cq_ring or auto"},
		{source: dataplane.SourceCQRing, mlx5: "/nonexistent/libmlx5.so.1", says: "mlx5"},
		{source: dataplane.SourceCollapsedCQ},
		{source: dataplane.SourceCQRing},
		{source: dataplane.SourcePollCQ},
	} {
		t.Run(string(c.source)+"/"+c.says, func(t *testing.T) {
			s := newSoftNIC(t)
			s.Env.Without, s.Config.RDMA.MLX5 = c.without, c.mlx5
			operations := local
			if c.typ != "" {
				operations = local[:1]
			}
			cfg := s.pairConfig(t, operations...)
			for i := range cfg.QueuePairs {
				cfg.QueuePairs[i].Type = c.typ
			}
			cfg.QueuePairs[0].Source = c.source
			e, err := s.newPairs(t, cfg)
			if c.says != "" {
				if !errors.Is(err, dataplane.ErrUnplaced) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), `queue pair "a"`) {
					t.Errorf("got %v, want that %q is said", err, c.says)
				}
				if u := (*probe.UnsupportedError)(nil); c.fix != "" && (!errors.As(err, &u) || !strings.Contains(u.Fix, c.fix)) {
					t.Errorf("%v: the next step is %+v, want %q", err, u, c.fix)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			if a := stateOf(t, e, "a"); a.Source.Modes() != string(c.source) || len(a.Rejected) != 0 {
				t.Errorf("%+v", a)
			}
			mustPost(t, e, "a", dataplane.Send, 100)
			wantTotals(t, cfg.Mirror.Path, map[string]backend.Pair{"a-send": ended(100, 0), "b-recv": ended(100, 0)})
		})
	}
}

// TestASourceThatFailsIsReplaced by ibv_poll_cq: a condition says so, and the totals go on.
func TestASourceThatFailsIsReplaced(t *testing.T) {
	s := newShimmedNIC(t)
	s.Env.Without = []string{"efadv"}
	cfg := s.pairConfig(t, local...)
	cfg.QueuePairs[1].Source = dataplane.SourcePollCQ
	s.Env.Fail = []ibvtest.Fault{{Verb: "ibv_read_comp_cntr", Errno: "EIO", From: 200}}
	e := s.startPairs(t, cfg)
	mustPost(t, e, "a", dataplane.Send, 100)
	c := awaitCondition(t, e, "queue-pair-source", "a", true)
	if !strings.Contains(c.Text, "ibv_read_comp_cntr") {
		t.Errorf("it does not say why: %s", c.Text)
	}
	wantTotals(t, cfg.Mirror.Path, map[string]backend.Pair{"a-send": ended(100, 0), "b-recv": ended(100, 0)})
	mustPost(t, e, "a", dataplane.Send, 50)
	wantTotals(t, cfg.Mirror.Path, map[string]backend.Pair{"a-send": ended(150, 0), "b-recv": ended(150, 0)})
	a := stateOf(t, e, "a")
	if a.Source.Modes() != modePoll || len(a.Rejected) != 2 || a.Rejected[1].Backend != modeCompCntr {
		t.Errorf("%+v", a)
	}
	if n, _ := discontinuities(t, cfg.Mirror.Path, "a-send"); n != 1 {
		t.Errorf("%d discontinuities", n)
	}

	lab.Step(t, c.Fix, "restart the instance")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	s.Env.Fail = nil
	e = s.startPairs(t, cfg)
	if got := stateOf(t, e, "a").Source.Modes(); got == modePoll {
		t.Errorf("after the restart it is counted by %s", got)
	}
	awaitCondition(t, e, "queue-pair-source", "a", false)
}

// The queue pair is there again afterwards, and the counters show the operations that Post returned.
func TestAVerbThatFailsForAWhileCostsOnlyWhatIsOutstanding(t *testing.T) {
	const query = "QUERY_QP" // the kernel's name of ibv_query_qp
	for _, verb := range []string{"ibv_post_send", "ibv_post_recv", "ibv_poll_cq", query} {
		t.Run(verb, func(t *testing.T) {
			s := newShimmedNIC(t)
			s.Env.Statistics = filepath.Join(t.TempDir(), "statistics")
			s.Env.Fail = []ibvtest.Fault{{Verb: verb, Errno: "EIO", From: 12, To: 14}}
			s.Env.Without = []string{"comp_cntr", "cq_ring"}
			cfg := s.pairConfig(t, local...)
			e := s.startPairs(t, cfg)
			var told backend.Pair
			for until := time.Now().Add(20 * time.Second); s.Calls(t, verb) < 20; {
				if time.Now().After(until) {
					t.Fatalf("%s was called %d times", verb, s.Calls(t, verb))
				}
				got, err := e.QueuePairs().Post(t.Context(), "a", dataplane.Send, 40)
				told = backend.Add(told, ended(got.Completed, got.Errors))
				if err != nil || verb == query { // which is called where something is wrong
					if !errors.Is(err, dataplane.ErrNotConnected) && !errors.Is(err, syscall.EIO) && err != nil {
						t.Fatal(err)
					}
					wrong := stateOf(t, e, "b").Local
					wrong.RKey ^= 0x5a5a
					if verb == query && e.QueuePairs().Connect(t.Context(), "a", wrong) == nil {
						e.QueuePairs().Post(t.Context(), "a", dataplane.RDMAWrite, 1)
					}
					time.Sleep(5 * time.Millisecond)
					if err := e.QueuePairs().Connect(t.Context(), "a", dataplane.QueuePairAddress{}); err != nil && !errors.Is(err, dataplane.ErrNotConnected) && !errors.Is(err, syscall.EIO) {
						t.Fatal(err)
					}
				}
			}
			// The last of them may have failed while connecting, and everything worked since. A
			// queue pair that was given up meanwhile is linked when it is back.
			if err := e.QueuePairs().Connect(t.Context(), "a", dataplane.QueuePairAddress{}); err != nil && !errors.Is(err, backend.ErrDeviceLost) {
				t.Fatal(err)
			}
			awaitLinked(t, e)
			mustPost(t, e, "a", dataplane.Send, 100)
			wantTotals(t, cfg.Mirror.Path, map[string]backend.Pair{"a-send": backend.Add(told, ended(100, 0))})
		})
	}
}
