package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/ibv/ibvtest"
)

// The result of outstanding operations is lost with their device. That is a discontinuity of the counters of that queue
// pair, and of the receives of the other one, but not of the sends of the other one.
func TestADeviceThatGoesAmidOperationsIsADiscontinuity(t *testing.T) {
	s := newSoftNIC(t)
	control := s.Controlled(t)
	s.Env.Delay = []ibvtest.Delay{{Verb: "WQE", Time: time.Hour}}
	cfg := s.pairConfig(t, local...)
	e := s.startPairs(t, cfg)
	answered := make(chan error, 1)
	go func() {
		_, err := e.QueuePairs().Post(context.Background(), "a", dataplane.Send, 10)
		answered <- err
	}()
	awaitOutstanding(t, e, "a", 10)
	if err := control.Remove(s.Device); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; !errors.Is(err, dataplane.ErrNotConnected) {
		t.Errorf("Post returns %v", err)
	}
	awaitCondition(t, e, "queue-pair-lost", "a", true)
	awaitCondition(t, e, "queue-pair-lost", "b", true)
	for name, gaps := range map[string]uint64{"a-send": 1, "a-recv": 1, "b-recv": 1, "b-send": 0, "b-rdma_write": 0} {
		if n, _ := discontinuities(t, cfg.Mirror.Path, name); n != gaps {
			t.Errorf("%s: %d discontinuities, want %d", name, n, gaps)
		}
	}
}

// TestQueuePairsFlushExactlyWhatIsOutstanding: the outstanding operations of a slow device end with errors when the
// queue pair is connected anew, each operation once. Operations that wait for room in the send queue are not posted.
func TestQueuePairsFlushExactlyWhatIsOutstanding(t *testing.T) {
	eachPairSource(t, func(t *testing.T, s *softNIC, _ string) {
		s.Env.Delay = []ibvtest.Delay{{Verb: "WQE", Time: time.Hour}}
		cfg := s.pairConfig(t, local...)
		e := s.startPairs(t, cfg)
		type answer struct {
			posted dataplane.Posted
			err    error
		}
		answered := make(chan answer, 1)
		go func() {
			p, err := e.QueuePairs().Post(context.Background(), "a", dataplane.Send, 1000)
			answered <- answer{p, err}
		}()
		awaitOutstanding(t, e, "a", 32) // of 1000, with that depth
		if err := e.QueuePairs().Connect(t.Context(), "a", dataplane.QueuePairAddress{}); err != nil {
			t.Fatal(err)
		}
		got := <-answered
		if got.posted != (dataplane.Posted{Errors: 32}) || !errors.Is(got.err, dataplane.ErrNotConnected) {
			t.Errorf("posting ended with %+v, %v", got.posted, got.err)
		}
		wantTotals(t, cfg.Mirror.Path, map[string]backend.Pair{
			"a-send": ended(0, 32), "a-recv": ended(0, 64), "b-recv": ended(0, 64), "b-send": {},
		})
	})
}

// TestClosingEndsWhoWaits for the operations of a slow device.
func TestClosingEndsWhoWaits(t *testing.T) {
	s := newSoftNIC(t)
	s.Env.Delay = []ibvtest.Delay{{Verb: "WQE", Time: time.Hour}}
	e := s.startPairs(t, s.pairConfig(t, local...))
	answered := make(chan error, 2)
	for range 2 { // one has its turn, one waits for it
		go func() {
			got, err := e.QueuePairs().Post(context.Background(), "a", dataplane.Send, 10)
			if got != (dataplane.Posted{}) {
				t.Errorf("%+v ended, and each operation takes an hour", got)
			}
			answered <- err
		}()
	}
	awaitOutstanding(t, e, "a", 10)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-answered; !errors.Is(err, dataplane.ErrClosed) {
			t.Errorf("Post returns %v", err)
		}
	}
}

// TestACallerWhoGivesUpLeavesTheRestToBeCounted: the next call of Post returns its own operations, without those that
// were outstanding when the first caller gave up.
func TestACallerWhoGivesUpLeavesTheRestToBeCounted(t *testing.T) {
	s := newSoftNIC(t)
	s.Env.Delay = []ibvtest.Delay{{Verb: "WQE", Time: 20 * time.Millisecond}}
	cfg := s.pairConfig(t, local...)
	e := s.startPairs(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan dataplane.Posted, 1)
	go func() {
		p, err := e.QueuePairs().Post(ctx, "a", dataplane.Send, 1000)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a caller who gives up is told %v", err)
		}
		answered <- p
	}()
	for stateOf(t, e, "a").Outstanding == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	early := <-answered
	mustPost(t, e, "a", dataplane.RDMAWrite, 3)
	awaitOutstanding(t, e, "a", 0)
	got := totalsFromNow(t, cfg.Mirror.Path, map[string]backend.Pair{"a-send": {}})["a-send"]
	if got.Packets < early.Completed || got.Packets > early.Completed+32+1 || got.Bytes != 0 {
		t.Errorf("%+v were counted, the caller saw %+v of them, and at most 32 were outstanding", got, early)
	}
	wantTotals(t, cfg.Mirror.Path, map[string]backend.Pair{"a-rdma_write": ended(3, 0)})
}
