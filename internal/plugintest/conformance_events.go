package plugintest

import (
	"context"
	"errors"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// until receives events up to the one of this kind about object. It returns their number, lost ones included, and whether
// one was about unwanted.
func (s *suite) until(events <-chan dataplane.Event, kind dataplane.EventKind, object, unwanted string) (n uint64) {
	s.t.Helper()
	for {
		select {
		case ev, ok := <-events:
			if !ok {
				s.t.Fatalf("the stream ended before %s of %s", kind, object)
			}
			if ev.Time.IsZero() {
				s.t.Errorf("an event without a time: %+v", ev)
			}
			n += 1 + ev.Lost
			if unwanted != "" && ev.Object == unwanted {
				s.t.Errorf("an event from before the subscription: %+v", ev)
			}
			if ev.Kind == kind && ev.Object == object {
				return n
			}
		case <-s.ctx.Done():
			s.t.Fatalf("no %s of %s came", kind, object)
		}
	}
}

func (s *suite) wantEnd(events <-chan dataplane.Event, why string) {
	s.t.Helper()
	for {
		select {
		case _, ok := <-events:
			if !ok {
				return
			}
		case <-s.ctx.Done():
			s.t.Fatalf("the stream is open after %s", why)
		}
	}
}

func testEvents(t *testing.T, s *suite) {
	s.add(flow.Flow{Name: "before"})
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	first, err := s.Events(ctx)
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.Events(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	s.add(flow.Flow{Name: "a"})
	s.until(first, dataplane.FlowAdded, "a", "before")
	if err := s.RemoveFlows(s.ctx, "a"); err != nil {
		t.Fatal(err)
	}
	s.until(first, dataplane.FlowRemoved, "a", "")
	cancel()
	s.wantEnd(first, "its context ended")
	s.until(second, dataplane.FlowAdded, "a", "before")
	s.until(second, dataplane.FlowRemoved, "a", "")
	s.add(flow.Flow{Name: "b"})
	s.until(second, dataplane.FlowAdded, "b", "")
	if err := s.Close(); err != nil {
		t.Errorf("closing: %v", err)
	}
	s.wantEnd(second, "the instance closed")
}

func testLag(t *testing.T, s *suite) {
	const n = 2000
	events, err := s.Events(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	flows := numbered(t, "lag", n)
	for i := 0; i < n; i += 100 { // without a reader
		s.add(flows[i : i+100]...)
	}
	s.add(flow.Flow{Name: "marker"})
	if got := s.until(events, dataplane.FlowAdded, "marker", ""); got < n+1 {
		t.Errorf("%d events arrived or were said to be lost, of at least %d", got, n+1)
	}
}

func testCancelled(t *testing.T, s *suite) {
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	_, err := s.AddFlows(ctx, flow.Flow{Name: "late"})
	s.wantErr("adding with a cancelled context", err, context.Canceled)
	s.wantNames()
	s.add(flow.Flow{Name: "kept"})
	s.wantErr("removing with a cancelled context", s.RemoveFlows(ctx, "kept"), context.Canceled)
	s.wantNames("kept")
	if events, err := s.Events(ctx); err == nil {
		s.wantEnd(events, "its context ended")
	} else if !errors.Is(err, context.Canceled) {
		t.Errorf("events with a cancelled context: %v", err)
	}
}

func testClose(t *testing.T, s *suite) {
	s.add(flow.Flow{Name: "a"})
	if err := s.Close(); err != nil {
		t.Fatalf("closing: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closing again: %v", err)
	}
	for name, call := range map[string]func() error{
		"Info":            func() error { _, err := s.Info(s.ctx); return err },
		"AddFlows":        func() error { _, err := s.AddFlows(s.ctx, flow.Flow{Name: "b"}); return err },
		"RemoveFlows":     func() error { return s.RemoveFlows(s.ctx, "a") },
		"Placements":      func() error { _, err := s.Placements(s.ctx); return err },
		"Conditions":      func() error { _, err := s.Conditions(s.ctx); return err },
		"QueuePairs.List": func() error { _, err := s.QueuePairs().List(s.ctx); return err },
		"QueuePairs.Connect": func() error {
			return s.QueuePairs().Connect(s.ctx, "a", dataplane.QueuePairAddress{})
		},
		"QueuePairs.Post": func() error { _, err := s.QueuePairs().Post(s.ctx, "a", dataplane.Send, 1); return err },
		"Events":          func() error { _, err := s.Events(s.ctx); return err },
	} {
		s.wantErr(name+" after Close", call(), dataplane.ErrClosed)
	}
}
