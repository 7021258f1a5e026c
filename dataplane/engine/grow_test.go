package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/shm/shmtest"
)

// A mirror that is full grows amid counting: no total is lost, in blocks and in records, no
// handle moves, and one reader sees it all.
func TestAFullMirrorGrows(t *testing.T) {
	cfg := config(t)
	cfg.Mirror.Counters = 0
	hand := newHand("hand")
	e := start(t, cfg, hand)
	r := shmtest.MustOpen(t, cfg.Mirror.Path)
	want := make(map[string]backend.Pair)
	for round := range 3 {
		var flows []flow.Flow
		for i := range 3000 {
			flows = append(flows, flow.Flow{Name: fmt.Sprintf("f%d-%d", round, i), Latency: i%2 == 0})
		}
		placed, err := e.AddFlows(t.Context(), flows...)
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range flows {
			want[f.Name] = backend.Pair{Packets: uint64(1000*round + i + 1), Bytes: uint64(i)}
			hand.count(f.Name, want[f.Name])
		}
		for _, p := range placed {
			h, err := r.Lookup(p.Flow.Name)
			if err != nil {
				t.Fatal(err)
			}
			if p.Counter != h {
				t.Errorf("%s is %+v, and the mirror has it at %+v", p.Flow.Name, p.Counter, h)
			}
		}
		wantTotals(t, cfg.Mirror.Path, want)
	}
	if s := r.Status(); s.Counters != 2*shm.SegmentLen || s.Records != 2*shm.SegmentLen || s.CountersUsed != 4500 || s.RecordsUsed != 4500 {
		t.Errorf("%+v", s)
	}
	conditions, err := e.Conditions(t.Context())
	conditions = slices.DeleteFunc(conditions, func(c dataplane.Condition) bool { return c.Code == "poll-overrun" }) // of a busy machine
	if err != nil || len(conditions) != 0 {
		t.Errorf("conditions: %+v, %v", conditions, err)
	}
	// Flows that go leave the right places.
	if err := e.RemoveFlows(t.Context(), "f0-0", "f0-1", "f2-88"); err != nil {
		t.Fatal(err)
	}
	delete(want, "f0-0")
	delete(want, "f0-1")
	delete(want, "f2-88")
	hand.count("f1-44", backend.Pair{Packets: 5000})
	want["f1-44"] = backend.Pair{Packets: 5000}
	wantTotals(t, cfg.Mirror.Path, want)
}

// A mirror that may not grow refuses flows that do not fit, keeps its counters, and raises a condition.
func TestAFullMirrorThatCannotGrowKeepsWhatItHas(t *testing.T) {
	cfg := config(t)
	cfg.Mirror.Counters = 64
	e := start(t, cfg, newHand("hand"))
	full := func() bool {
		all, err := e.Conditions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(all, func(c dataplane.Condition) bool { return c.Code == "mirror-full" })
	}
	var flows []flow.Flow
	for i := range 65 {
		flows = append(flows, flow.Flow{Name: fmt.Sprint("f", i)})
	}
	if _, err := e.AddFlows(t.Context(), flows...); !errors.Is(err, dataplane.ErrFull) || !strings.Contains(err.Error(), "all 64 counters") {
		t.Fatalf("got %v, want that it is full, and why", err)
	}
	if n := len(e.writer.Entries()); n != 0 {
		t.Errorf("%d entries are left of a refused addition", n)
	}
	lab.Eventually(t, "the condition mirror-full", full)
	if _, err := e.AddFlows(t.Context(), flows[:60]...); err != nil {
		t.Fatal(err)
	}
	lab.Eventually(t, "the end of mirror-full", func() bool { return !full() })
	if _, err := e.AddFlows(t.Context(), flows[60:]...); !errors.Is(err, dataplane.ErrFull) {
		t.Error(err)
	}
	// Where there is room again, the next flow that needs it finds it.
	if err := e.RemoveFlows(t.Context(), "f0"); err != nil {
		t.Fatal(err)
	}
	if _, err := e.AddFlows(t.Context(), flows[60:]...); err != nil {
		t.Error(err)
	}
}

// totalsOf returns the values of counters in the mirror, without counters that were not sampled.
func totalsOf(t *testing.T, path string, want map[string]backend.Pair) map[string]backend.Pair {
	t.Helper()
	return totalsSince(t, path, want, 1)
}

// totalsFromNow returns the totals when the mirror shows samples of later than now.
func totalsFromNow(t *testing.T, path string, want map[string]backend.Pair) map[string]backend.Pair {
	t.Helper()
	since := shm.Now()
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if got := totalsSince(t, path, want, since); len(got) == len(want) {
			return got
		}
	}
	t.Fatalf("the samples of %v are of before the question", want)
	return nil
}

// totalsSince leaves out samples from before since.
func totalsSince(t *testing.T, path string, want map[string]backend.Pair, since int64) map[string]backend.Pair {
	t.Helper()
	r, err := shm.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got := make(map[string]backend.Pair)
	for name := range want {
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
		if v.SampledAt >= since {
			got[name] = backend.Pair{Packets: v.Packets, Bytes: v.Bytes}
		}
	}
	return got
}

// wantTotals waits until the mirror shows these totals.
func wantTotals(t *testing.T, path string, want map[string]backend.Pair) {
	t.Helper()
	got := make(map[string]backend.Pair)
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
		got = totalsOf(t, path, want)
		right := true
		for name, w := range want {
			g, sampled := got[name]
			right = right && sampled && g == w
		}
		if right {
			return
		}
	}
	for name, w := range want {
		if got[name] != w {
			t.Errorf("%s: the mirror shows %d and %d, want %d and %d", name, got[name].Packets, got[name].Bytes, w.Packets, w.Bytes)
		}
	}
	t.FailNow()
}
