package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/control"
)

// slowOver is a device whose firmware takes its time over a command, until the test lets it go on.
type slowOver struct {
	*fakeHardware
	asked chan struct{} // a command has begun
	goOn  chan struct{} // closed: it ends, and later ones at once
}

func (o *slowOver) wait() {
	select {
	case o.asked <- struct{}{}:
	default:
	}
	<-o.goOn
}

func (o *slowOver) Install(ctx context.Context, flows []backend.Placed) ([]backend.Installed, error) {
	o.wait()
	return o.fakeHardware.Install(ctx, flows)
}

func (o *slowOver) Remove(ctx context.Context, flows []backend.Placed) error {
	o.wait()
	return o.fakeHardware.Remove(ctx, flows)
}

// slowly makes the device of an instance slow from now on.
func slowly(s *stacked) *slowOver {
	o := &slowOver{fakeHardware: s.over, asked: make(chan struct{}, 1), goOn: make(chan struct{})}
	s.e.ctl.Lock()
	defer s.e.ctl.Unlock()
	s.e.mover.stack.hardware, s.e.backends[0] = o, o
	return o
}

// answer waits for the result of a call of another goroutine; the bound is for hangs.
func answer[T any](t *testing.T, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s does not come", what)
	}
	return v
}

// awaitCalls returns when no control call is under way.
func awaitCalls(e *Engine) {
	e.ctl.Lock()
	e.ctl.Unlock()
}

// behind runs a call in a goroutine of its own.
func behind(call func() error) <-chan error {
	out := make(chan error, 1)
	go func() { out <- call() }()
	return out
}

// A caller that adds flows to a device that hangs returns with its context, and none of the flows
// stays. A caller that only reads does not wait, and other callers wait only as long as their own contexts last.
func TestCallsEndWithTheirContextsThoughADeviceDoesNotAnswer(t *testing.T) {
	s := newStacked(t, t.TempDir()+"/", &world{over: newFakeHardware(true), under: newFakeSoftware()}, false)
	defer s.e.Close()
	o := slowly(s)
	web := udpFlow(t, "web", "ipv4 udp dport 1", 0)
	ctx, cancel := context.WithCancel(t.Context())
	adding := behind(func() error { _, err := s.e.AddFlows(ctx, web); return err })
	answer(t, "the command", o.asked)

	looks := behind(func() error {
		_, err1 := s.e.Info(t.Context())
		_, err2 := s.e.Conditions(t.Context())
		_, err3 := s.e.QueuePairs().List(t.Context())
		_, err4 := s.e.Events(t.Context())
		_, err5 := s.e.ReservedWords(t.Context())
		return errors.Join(err1, err2, err3, err4, err5)
	})
	if err := answer(t, "what reads", looks); err != nil {
		t.Error(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for what, call := range map[string]func() error{
		"listing the flows":     func() error { _, err := s.e.Placements(ended); return err },
		`adding flow "web"`:     func() error { _, err := s.e.AddFlows(ended, web); return err },
		`removing flow "other"`: func() error { return s.e.RemoveFlows(ended, "other") },
	} {
		if err := answer(t, what, behind(call)); !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), what) {
			t.Errorf("%s: %v, want that it was not waited for", what, err)
		}
	}
	cancel()
	err := answer(t, "the end of adding", adding)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), `flow "web"`) {
		t.Errorf("error %v, want the context's, of flow web", err)
	}
	close(o.goOn)
	awaitCalls(s.e)
	placed, err := s.e.Placements(t.Context())
	if err != nil || len(placed) != 0 || len(s.over.flows) != 0 || len(s.under.flows) != 0 {
		t.Errorf("placed %+v, err %v; %d in hardware, %d behind it: a flow that nobody waited for stays", placed, err, len(s.over.flows), len(s.under.flows))
	}
	if _, err := s.e.AddFlows(t.Context(), web); err != nil {
		t.Errorf("adding it again: %v", err)
	}
}

// A removal whose caller has left goes on.
func TestARemovalGoesOnWithoutItsCaller(t *testing.T) {
	s := newStacked(t, t.TempDir()+"/", &world{over: newFakeHardware(true), under: newFakeSoftware()}, false)
	defer s.e.Close()
	if _, err := s.e.AddFlows(t.Context(), udpFlow(t, "web", "ipv4 udp dport 1", 0)); err != nil {
		t.Fatal(err)
	}
	o := slowly(s)
	ctx, cancel := context.WithCancel(t.Context())
	removing := behind(func() error { return s.e.RemoveFlows(ctx, "web") })
	answer(t, "the command", o.asked)
	cancel()
	if err := answer(t, "the end of removing", removing); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "goes on") {
		t.Errorf("error %v, want that the removal goes on", err)
	}
	if placed, err := s.e.Placements(t.Context()); err != nil || len(placed) != 1 {
		t.Errorf("while the removal goes on: placed %+v, err %v", placed, err)
	}
	close(o.goOn)
	awaitCalls(s.e)
	if placed, err := s.e.Placements(t.Context()); err != nil || len(placed) != 0 {
		t.Errorf("placed %+v, err %v", placed, err)
	}
}

// refusingRemovals is a slow device that refuses to remove flows.
type refusingRemovals struct{ *slowOver }

var errStuckRule = errors.New("rule is busy")

func (o *refusingRemovals) Remove(context.Context, []backend.Placed) error {
	o.wait()
	return errStuckRule
}

// TestADecidedChangeIsNoSuccessBeforeItsEnd: a caller of SetFlows leaves after the decision and before the device, which
// then refuses. The caller gets no success, and the error names the way to the outcome.
func TestADecidedChangeIsNoSuccessBeforeItsEnd(t *testing.T) {
	s := newStacked(t, t.TempDir()+"/", &world{over: newFakeHardware(true), under: newFakeSoftware()}, false)
	defer s.e.Close()
	if _, err := s.e.AddFlows(t.Context(), udpFlow(t, "web", "ipv4 udp dport 1", 0)); err != nil {
		t.Fatal(err)
	}
	o := slowly(s)
	r := &refusingRemovals{o}
	s.e.ctl.Lock()
	s.e.mover.stack.hardware, s.e.backends[0] = r, r
	s.e.ctl.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	var d dataplane.Difference
	setting := behind(func() (err error) { d, err = s.e.SetFlows(ctx, nil, dataplane.SetOptions{}); return err })
	answer(t, "the command", o.asked)
	cancel()
	err := answer(t, "the end of the call", setting)
	var unfinished *dataplane.UnfinishedError
	if !errors.As(err, &unfinished) || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "Placements") || len(d.Removed) != 1 {
		t.Fatalf("error %v, difference %q; want an unfinished change", err, d)
	}
	close(o.goOn)
	if err := answer(t, "the outcome", unfinished.Outcome); !errors.Is(err, errStuckRule) {
		t.Errorf("outcome %v, want the refusal", err)
	}
	if placed, err := s.e.Placements(t.Context()); err != nil || len(placed) != 1 {
		t.Errorf("placed %+v, err %v; want the flow of before", placed, err)
	}
}

// Close does not wait for a device for ever; the rest is done when the device returns.
func TestCloseDoesNotWaitForADeviceForEver(t *testing.T) {
	s := newStacked(t, t.TempDir()+"/", &world{over: newFakeHardware(true), under: newFakeSoftware()}, false)
	o := slowly(s)
	adding := behind(func() error {
		_, err := s.e.AddFlows(t.Context(), udpFlow(t, "web", "ipv4 udp dport 1", 0))
		return err
	})
	answer(t, "the command", o.asked)
	waiting := behind(func() error { return s.e.RemoveFlows(t.Context(), "other") })
	s.e.bound = time.Millisecond
	if err := answer(t, "the end of Close", behind(s.e.Close)); !errors.Is(err, ErrUnreturned) {
		t.Errorf("error %v, want that it was not waited for", err)
	}
	_, err := s.e.Info(t.Context())
	for what, err := range map[string]error{"who waits": answer(t, "the end of who waits", waiting), "who asks": err} {
		if !errors.Is(err, dataplane.ErrClosed) {
			t.Errorf("%s: error %v, want that the instance is closed", what, err)
		}
	}
	close(o.goOn)
	if err := answer(t, "the end of adding", adding); !errors.Is(err, dataplane.ErrClosed) {
		t.Errorf("error %v, want that the instance is closed", err)
	}
	s.e.bound = backend.CloseBound
	for range 2 {
		if err := answer(t, "the end of Close", behind(s.e.Close)); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.e.Placements(t.Context()); !errors.Is(err, dataplane.ErrClosed) {
		t.Errorf("error %v of an instance that is closed", err)
	}
}

// A call whose caller leaves before it begins does nothing.
func TestACallWhoseContextHasEndedDoesNothing(t *testing.T) {
	s := newStacked(t, t.TempDir()+"/", &world{over: newFakeHardware(true), under: newFakeSoftware()}, false)
	defer s.e.Close()
	if _, err := s.e.AddFlows(t.Context(), udpFlow(t, "web", "ipv4 udp", 9)); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := s.e.RemoveFlows(ended, "web"); !errors.Is(err, context.Canceled) || s.e.flows["web"] == nil {
		t.Errorf("error %v; flows %v", err, s.e.flows)
	}
}

// leaving is a device whose caller leaves during a command.
type leaving struct {
	*fakeHardware
	leave func()
}

func (o *leaving) Install(ctx context.Context, flows []backend.Placed) ([]backend.Installed, error) {
	o.leave()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return o.fakeHardware.Install(ctx, flows)
}

// A caller that gives up is no refusal: existing flows keep their places, and their totals have no gap.
func TestACallThatIsGivenUpDisplacesNobody(t *testing.T) {
	s := newStacked(t, t.TempDir()+"/", &world{over: newFakeHardware(true), under: newFakeSoftware()}, false)
	defer s.e.Close()
	if _, err := s.e.AddFlows(t.Context(), udpFlow(t, "below", "ipv4 udp", 9)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	o := &leaving{s.over, cancel}
	s.e.mover.stack.hardware, s.e.backends[0] = o, o
	s.moves()
	_, err := s.e.AddFlows(ctx, udpFlow(t, "web", "ipv4 udp dport 1", 0))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
	if moves := s.moves(); len(moves) != 0 || s.source("below") != "rdma" || s.under.clock != 0 {
		t.Errorf("below is counted by %s after %+v; the hook was taken %d times", s.source("below"), moves, s.under.clock)
	}
	if n := s.e.flows["below"].past.Discontinuities; n != 0 {
		t.Errorf("%d discontinuities", n)
	}
}

// A call that Close ends says so, though the context of its caller ends as well before it has returned.
func TestACallThatCloseEndsSaysSo(t *testing.T) {
	e := start(t, config(t))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := e.call(ctx, "adding", "none of them stays", func(running context.Context, _ *control.Commit) error {
		e.quit() // as Close does
		<-running.Done()
		err := running.Err()
		cancel()
		return err
	})
	if !errors.Is(err, dataplane.ErrClosed) {
		t.Errorf("error %v, want that the instance is closed", err)
	}
}
