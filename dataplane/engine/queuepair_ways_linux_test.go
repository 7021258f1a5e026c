package engine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/probe"
	"github.com/flowtally/flowtally/shm"
)

// TestDatagramsAreCounted: of two queue pairs of type ud one names the other, and can send to it.
func TestDatagramsAreCounted(t *testing.T) {
	eachPairSource(t, func(t *testing.T, s *softNIC, _ string) {
		cfg := s.pairConfig(t, dataplane.Send, dataplane.Recv)
		for i := range cfg.QueuePairs {
			cfg.QueuePairs[i].Type = dataplane.UD
		}
		e := s.startPairs(t, cfg)
		mustPost(t, e, "a", dataplane.Send, 50) // no more than the posted receives: a sender does not wait for the receives of datagrams
		want := map[string]backend.Pair{"a-send": ended(50, 0), "b-recv": ended(50, 0), "b-send": {}, "a-recv": {}}
		wantTotals(t, cfg.Mirror.Path, want)
		if _, err := e.QueuePairs().Post(t.Context(), "b", dataplane.Send, 1); !errors.Is(err, dataplane.ErrNotConnected) {
			t.Errorf("b knows no way, and posts: %v", err)
		}
		if _, err := e.QueuePairs().Post(t.Context(), "a", dataplane.RDMAWrite, 1); !errors.Is(err, dataplane.ErrInvalid) {
			t.Errorf("writing by datagrams: %v", err)
		}
		if err := e.QueuePairs().Connect(t.Context(), "b", dataplane.QueuePairAddress{}); !errors.Is(err, dataplane.ErrInvalid) {
			t.Errorf("connecting as configured what no configuration connects: %v", err)
		}
		if err := e.QueuePairs().Connect(t.Context(), "b", stateOf(t, e, "a").Local); err != nil {
			t.Fatal(err)
		}
		mustPost(t, e, "b", dataplane.Send, 20)
		want["b-send"], want["a-recv"] = ended(20, 0), ended(20, 0)
		wantTotals(t, cfg.Mirror.Path, want)
	})
}

// TestReliableDatagramsNeedLibEFA: an instance with a queue pair of type srd does not start over a libefa that has no such
// queue pairs, as the uverbs kernel in its place. The error names the symbol and a next step.
func TestReliableDatagramsNeedLibEFA(t *testing.T) {
	s := newSoftNIC(t)
	cfg := s.pairConfig(t, dataplane.Send, dataplane.Recv)
	cfg.RDMA.EFA = os.Getenv("LD_PRELOAD")
	for i := range cfg.QueuePairs {
		cfg.QueuePairs[i].Type = dataplane.SRD
	}
	var refused *probe.UnsupportedError
	e, err := s.newPairs(t, cfg)
	if e != nil || !errors.As(err, &refused) || !strings.Contains(err.Error(), `queue pair "a"`) ||
		!strings.Contains(refused.Reason, "efadv_create_qp_ex") || refused.Fix == "" {
		t.Fatalf("started: %v: %v: %+v", e != nil, err, refused)
	}
}

// TestDatagramsFindTheirWayAgain after their device was gone, if the configuration names the peer. A peer that an
// operator named must be named again.
func TestDatagramsFindTheirWayAgain(t *testing.T) {
	s := newSoftNIC(t)
	control := s.Controlled(t)
	cfg := s.pairConfig(t, dataplane.Send, dataplane.Recv)
	for i := range cfg.QueuePairs {
		cfg.QueuePairs[i].Type = dataplane.UD
	}
	e := s.startPairs(t, cfg)
	if err := e.QueuePairs().Connect(t.Context(), "b", stateOf(t, e, "a").Local); err != nil {
		t.Fatal(err)
	}
	mustPost(t, e, "b", dataplane.Send, 3)
	if err := control.Remove(s.Device); err != nil {
		t.Fatal(err)
	}
	awaitCondition(t, e, "queue-pair-lost", "a", true)
	awaitCondition(t, e, "queue-pair-lost", "b", true)
	if err := control.Return(s.Device); err != nil {
		t.Fatal(err)
	}
	lab.Eventually(t, "a's way to the new b", func() bool {
		a, b := stateOf(t, e, "a"), stateOf(t, e, "b")
		return a.State == "RTS" && b.State == "RTS" && a.Peer == b.Local
	})
	mustPost(t, e, "a", dataplane.Send, 5)
	if _, err := e.QueuePairs().Post(t.Context(), "b", dataplane.Send, 1); !errors.Is(err, dataplane.ErrNotConnected) {
		t.Errorf("b was told nothing since, and posts: %v", err)
	}
	wantTotals(t, cfg.Mirror.Path, map[string]backend.Pair{"a-send": ended(5, 0), "b-recv": ended(5, 0), "b-send": ended(3, 0), "a-recv": ended(3, 0)})
}

// TestAQueuePairCanBeItsOwnPeer, and counts both ends. A message may be longer than the MTU: a connection splits it.
func TestAQueuePairCanBeItsOwnPeer(t *testing.T) {
	s := newSoftNIC(t)
	cfg := s.pairConfig(t, local...)
	cfg.QueuePairs = cfg.QueuePairs[:1]
	cfg.QueuePairs[0].Connect, cfg.QueuePairs[0].MessageSize = "a", 1<<16
	e := s.startPairs(t, cfg)
	mustPost(t, e, "a", dataplane.Send, 123)
	mustPost(t, e, "a", dataplane.RDMAWrite, 7)
	wantTotals(t, cfg.Mirror.Path, map[string]backend.Pair{"a-send": ended(123, 0), "a-recv": ended(123, 0), "a-rdma_write": ended(7, 0)})
}

// It has no buffer to flush.
func TestAQueuePairWithoutBuffersSendsReadsAndWrites(t *testing.T) {
	s := newSoftNIC(t)
	cfg := s.pairConfig(t, local...)
	cfg.QueuePairs[0].Receives = -1
	e := s.startPairs(t, cfg)
	mustPost(t, e, "a", dataplane.Send, 50)
	mustPost(t, e, "a", dataplane.RDMARead, 7)
	awaitPolled(t, e, dataplane.RDMARead, "b")
	if err := e.QueuePairs().Connect(t.Context(), "a", dataplane.QueuePairAddress{}); err != nil {
		t.Fatal(err)
	}
	wantTotals(t, cfg.Mirror.Path, map[string]backend.Pair{"a-send": ended(50, 0), "a-rdma_read": ended(7, 0), "a-recv": {}, "b-recv": ended(50, 64)})
}

// TestTwoInstancesAreConnectedByAddresses that their operators exchange; a name in the mirror
// is a flow's or a counter's.
func TestTwoInstancesAreConnectedByAddresses(t *testing.T) {
	s := newSoftNIC(t)
	var engines [2]*Engine
	var cfgs [2]dataplane.Config
	for i := range engines {
		cfgs[i] = s.pairConfig(t, local...)
		cfgs[i].QueuePairs = cfgs[i].QueuePairs[:1]
		cfgs[i].QueuePairs[0].Connect = ""
		engines[i] = s.startPairs(t, cfgs[i])
		if q := stateOf(t, engines[i], "a"); q.State != "INIT" || q.Local.Validate() != nil {
			t.Fatalf("before it knows its peer: %+v", q)
		}
	}
	if _, err := engines[0].QueuePairs().Post(t.Context(), "a", dataplane.Send, 1); !errors.Is(err, dataplane.ErrNotConnected) {
		t.Errorf("posting before: %v", err)
	}
	for i, e := range engines {
		if err := e.QueuePairs().Connect(t.Context(), "a", stateOf(t, engines[1-i], "a").Local); err != nil {
			t.Fatal(err)
		}
	}
	mustPost(t, engines[0], "a", dataplane.Send, 10)
	mustPost(t, engines[1], "a", dataplane.RDMARead, 20)
	wantTotals(t, cfgs[0].Mirror.Path, map[string]backend.Pair{"a-send": ended(10, 0), "a-recv": {}})
	wantTotals(t, cfgs[1].Mirror.Path, map[string]backend.Pair{"a-recv": ended(10, 0), "a-rdma_read": ended(20, 0)})

	e := engines[0]
	for _, bad := range []struct {
		op    dataplane.Operation
		count int
		want  error
	}{
		{dataplane.Recv, 1, dataplane.ErrInvalid}, {dataplane.RemoteRDMAWrite, 1, dataplane.ErrInvalid},
		{"fly", 1, dataplane.ErrInvalid}, {dataplane.Send, 0, dataplane.ErrInvalid},
	} {
		if _, err := e.QueuePairs().Post(t.Context(), "a", bad.op, bad.count); !errors.Is(err, bad.want) {
			t.Errorf("posting %d %s: %v, want %v", bad.count, bad.op, err, bad.want)
		}
	}
	if _, err := e.QueuePairs().Post(t.Context(), "nobody", dataplane.Send, 1); !errors.Is(err, dataplane.ErrNotFound) {
		t.Errorf("posting on nobody: %v", err)
	}
	peer := stateOf(t, e, "a").Peer
	peer.QPN = 0
	if err := e.QueuePairs().Connect(t.Context(), "a", peer); !errors.Is(err, dataplane.ErrInvalid) {
		t.Errorf("connecting to nobody: %v", err)
	}
	if _, err := e.AddFlows(t.Context(), flowNamed("a-send")); !errors.Is(err, dataplane.ErrExists) {
		t.Errorf("a flow of a counter's name: %v", err)
	}
	if _, err := e.AddFlows(t.Context(), flowNamed("f")); !errors.Is(err, dataplane.ErrUnplaced) || !strings.Contains(err.Error(), "without an interface") {
		t.Errorf("a flow without an interface to count on: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := e.QueuePairs().Post(t.Context(), "a", dataplane.Send, 1); !errors.Is(err, dataplane.ErrClosed) {
		t.Errorf("posting on a closed instance: %v", err)
	}
}

// The counters are in memory of the library. One that may wrap twice between two reads is refused.
func TestCompletionCountersThatGoOnAtZeroAreExtended(t *testing.T) {
	t.Run("extended", countersAreExtended)
	t.Run("refused", countersAreRefused)
}

func countersAreExtended(t *testing.T) {
	s := newShimmedNIC(t)
	s.Env.CompCntrMax = []string{"699"}
	cfg := s.pairConfig(t, local...)
	e := s.startPairs(t, cfg)
	if a := stateOf(t, e, "a"); a.Source.Modes() != modeCompCntr || a.Rejected[0].Backend != modeExternal || !strings.Contains(a.Rejected[0].Reason, "too soon") {
		t.Fatalf("counters up to 699: %+v", a)
	}
	mustPost(t, e, "a", dataplane.Send, 5000)
	wantTotals(t, cfg.Mirror.Path, map[string]backend.Pair{"a-send": ended(5000, 0), "b-recv": ended(5000, 0)})
}

func countersAreRefused(t *testing.T) {
	s := newShimmedNIC(t)
	s.Env.CompCntrMax, s.Env.CompCntrOps = []string{"400"}, []string{"send", "recv"}
	cfg := s.pairConfig(t, local...)
	cfg.QueuePairs[1].SendDepth, cfg.QueuePairs[1].Receives = 8, 8
	e := s.startPairs(t, cfg)
	for name, reason := range map[string]string{"a": "go on at 0 past 400", "b": "a completion counter of RDMA_READ"} {
		q := stateOf(t, e, name)
		i := 0
		for i < len(q.Rejected)-1 && q.Rejected[i].Backend != modeCompCntr {
			i++
		}
		if q.Source.Modes() != modeRing || !strings.Contains(q.Rejected[i].Reason, reason) {
			t.Errorf("%s: counted by %s, rejected: %+v, want %q", name, q.Source.Modes(), q.Rejected, reason)
		}
	}
}

// TestWhatCannotBeMadeIsSaidAtTheStart, with the queue pair, the device and the reason, and leaves
// nothing behind.
func TestWhatCannotBeMadeIsSaidAtTheStart(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*dataplane.QueuePair)
		fail   string // a verb, or its call to the kernel
		says   string
	}{
		{"no device", func(q *dataplane.QueuePair) { q.Device = "nodev0" }, "", "nodev0"},
		{"no port", func(q *dataplane.QueuePair) { q.Port = 2 }, "", "is 1: correct `port`"},
		{"no GID", func(q *dataplane.QueuePair) { q.GIDIndex = 200 }, "", "gid_index is 200"},
		// The queues of an EFA are shorter than the longest of a configuration.
		{"too deep", func(q *dataplane.QueuePair) {
			q.Device, q.Type, q.SendDepth, q.Counters = "efa_short", dataplane.UD, 1<<15, nil
		}, "", "send_depth is 32768"},
		{"deeper than the device has room", func(q *dataplane.QueuePair) { q.SendDepth = 1 << 15 }, "", "send_depth is 32768 and receives 64, and the device, whose limit of 32768 is that of the shortest requests, has no such queues: set them to at most 8192 in the configuration: "},
		{"a long datagram", func(q *dataplane.QueuePair) { q.Type, q.MessageSize, q.Counters = dataplane.UD, 1<<20, nil }, "", "message_size is 1048576"},
		{"", nil, "ALLOC_PD", "ibv_alloc_pd"}, {"", nil, "REG_MR", "ibv_reg_mr"}, {"", nil, "CQ_CREATE", "ibv_create_cq"},
		{"", nil, "QP_CREATE", "ibv_create_qp"}, {"", nil, "MODIFY_QP", "ibv_modify_qp"}, {"", nil, "ibv_post_recv", "ibv_post_recv"},
		{"", nil, "QUERY_GID_ENTRY", "ibv_query_gid"}, {"", nil, "QUERY_DEVICE", "ibv_query_device"}, {"", nil, "QUERY_PORT", "ibv_query_port"},
	} {
		t.Run(c.name+c.fail, func(t *testing.T) {
			s := nicThatFails(t, c.fail)
			s.Env.Devices = append(s.Env.Devices, ibvtest.Device{Name: "efa_short", Netdev: "lo"})
			cfg := s.pairConfig(t, local...)
			cfg.QueuePairs[0].Connect = ""
			if c.change != nil {
				c.change(&cfg.QueuePairs[1])
			} else {
				s.Env.Fail = []ibvtest.Fault{{Verb: c.fail, Errno: "EIO"}}
			}
			e, err := s.newPairs(t, cfg)
			if err == nil {
				e.Close()
				t.Fatal("it starts")
			}
			if !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "queue pair ") {
				t.Errorf("%v: want the queue pair and %q in it", err, c.says)
			}
			s.Env.Fail, cfg.QueuePairs[1] = nil, s.pairConfig(t, local...).QueuePairs[1]
			if strings.Contains(err.Error(), "set them to at most 8192") {
				cfg.QueuePairs[1].SendDepth = 8192
			}
			s.startPairs(t, cfg) // the mirror is free, and the device whole
		})
	}
}

// TestQueuePairsLastOnTheirOwn: an interface, XDP or a flow is not needed, and a mirror that an
// earlier run filled with other names is taken over.
func TestQueuePairsLastOnTheirOwn(t *testing.T) {
	s := newSoftNIC(t)
	cfg := s.pairConfig(t, dataplane.Send)
	w, err := shm.Create(shm.Options{Path: cfg.Mirror.Path, Counters: 64})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Add(shm.Entry{Name: "a-send", Kind: "flow"}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	e := s.startPairs(t, cfg)
	mustPost(t, e, "a", dataplane.Send, 5)
	wantTotals(t, cfg.Mirror.Path, map[string]backend.Pair{"a-send": ended(5, 0)})
	if n, _ := discontinuities(t, cfg.Mirror.Path, "a-send"); n != 0 {
		t.Errorf("it goes on from a flow of its name: %d discontinuities", n)
	}
	if files, _ := filepath.Glob(filepath.Dir(cfg.Mirror.Path) + "/t.*"); len(files) < 2 {
		t.Errorf("only %v beside the mirror", files)
	}
}
