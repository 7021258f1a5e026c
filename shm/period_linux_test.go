package shm

import (
	"context"
	"testing"
	"time"
)

// The header keeps the poll period until the writer changes it, even in a file made anew. After a takeover it is 0 until
// the new writer calls SetPollPeriod.
func TestHeaderTellsThePollPeriodUntilTheNextWriter(t *testing.T) {
	path := mirrorPath(t)
	w := mustCreate(t, Options{Path: path, HeartbeatPeriod: patience})
	r := mustOpen(t, path)
	check := func(when string, r *Reader, want time.Duration) {
		t.Helper()
		if got := r.Status().PollPeriod; got != want {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	check("at first", r, 0)
	for _, d := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, 0, time.Second} {
		if err := w.SetPollPeriod(d); err != nil {
			t.Fatal(err)
		}
		check("set", r, d)
	}
	if err := w.Remake(nil); err != nil {
		t.Fatal(err)
	}
	check("in a file that is made anew", mustOpen(t, path), time.Second)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.SetPollPeriod(1); err == nil {
		t.Error("a closed writer sets a period")
	}
	mustCreate(t, Options{Path: path, HeartbeatPeriod: patience})
	check("of the next writer", mustOpen(t, path), 0)
}

// WokenAt changes only if a wake has woken a process.
func TestAWakeOfASleeperIsNoted(t *testing.T) {
	w := mustCreate(t, Options{Path: mirrorPath(t), HeartbeatPeriod: patience})
	h, err := w.Add(Entry{Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	cycle := func() {
		w.BeginCycle()
		w.PublishBlock(0, &Block{{SampledAt: Now()}})
		w.EndCycle(Now())
	}
	for range 3 * wakeBurst {
		cycle()
	}
	if at := w.WokenAt(); at != 0 {
		t.Errorf("woken at %d, without a sleeper", at)
	}
	r := mustOpen(t, w.Path())
	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = r.Wait(ctx, h, 1)
	}()
	before := Now()
	for end := time.Now().Add(time.Minute); w.WokenAt() < before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no cycle has woken the process")
		}
		cycle()
	}
	end()
	<-done
}
