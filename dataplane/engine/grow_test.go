package engine

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
)

// A mirror that is full grows amid counting: no total is lost, in blocks and in records, those
// of flows that are added by the same call included, and readers follow.
func TestAFullMirrorGrows(t *testing.T) {
	cfg := config(t)
	cfg.Mirror.Counters, cfg.Mirror.LatencyCounters = 64, 1
	hand := newHand("hand")
	e := start(t, cfg, hand)
	old, err := shm.Open(cfg.Mirror.Path, shm.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	want := make(map[string]Pair)
	for round := range 3 {
		var flows []flow.Flow
		for i := range 90 {
			flows = append(flows, flow.Flow{Name: fmt.Sprintf("f%d-%d", round, i), Latency: i%2 == 0})
		}
		placed, err := e.AddFlows(t.Context(), flows...)
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range flows {
			want[f.Name] = Pair{Packets: uint64(1000*round + i + 1), Bytes: uint64(i)}
			hand.count(f.Name, want[f.Name])
		}
		r, err := shm.Open(cfg.Mirror.Path, shm.ReaderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range placed { // as they stand now; those that came later moved the earlier ones
			all, err := e.Placements(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			h, err := r.Lookup(p.Flow.Name)
			if err != nil {
				t.Fatal(err)
			}
			for _, now := range all {
				if now.Flow.Name == p.Flow.Name && now.Counter != h {
					t.Errorf("%s is %+v, and the mirror has it at %+v", p.Flow.Name, now.Counter, h)
				}
			}
		}
		r.Close()
		wantTotals(t, cfg.Mirror.Path, want)
	}
	if old.Status().State != shm.Superseded {
		t.Errorf("readers of the first file see it in state %v", old.Status().State)
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
	hand.count("f1-44", Pair{Packets: 5000})
	want["f1-44"] = Pair{Packets: 5000}
	wantTotals(t, cfg.Mirror.Path, want)
}

// One that cannot grow refuses what does not fit, keeps what it has, and says so.
func TestAFullMirrorThatCannotGrowKeepsWhatItHas(t *testing.T) {
	cfg := config(t)
	cfg.Mirror.Counters = 64
	e := start(t, cfg, newHand("hand"))
	var flows []flow.Flow
	for i := range 65 {
		flows = append(flows, flow.Flow{Name: fmt.Sprint("f", i)})
	}
	dir := cfg.Mirror.Path[:len(cfg.Mirror.Path)-len("/t.mirror")]
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	_, err := e.AddFlows(t.Context(), flows...)
	if err := os.Rename(dir+"-away", dir); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, dataplane.ErrFull) || !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("got %v, want that it is full, and why", err)
	}
	if n := len(e.writer.Entries()); n != 0 {
		t.Errorf("%d entries are left of a refused addition", n)
	}
	time.Sleep(1100 * time.Millisecond) // slots cool down
	if _, err := e.AddFlows(t.Context(), flows[:60]...); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the condition mirror-full", func() bool {
		all, err := e.Conditions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(all, func(c dataplane.Condition) bool { return c.Code == "mirror-full" })
	})
	// Where there is room again, the next flow that needs it finds it.
	if _, err := e.AddFlows(t.Context(), flows[60:]...); err != nil {
		t.Error(err)
	}
}

// totalsOf are what the mirror shows of these counters; one that was not sampled is left out.
func totalsOf(t *testing.T, path string, want map[string]Pair) map[string]Pair {
	t.Helper()
	return totalsSince(t, path, want, 1)
}

// totalsFromNow are the totals once the mirror shows what was sampled from now on.
func totalsFromNow(t *testing.T, path string, want map[string]Pair) map[string]Pair {
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

// totalsSince leaves out what was sampled before since.
func totalsSince(t *testing.T, path string, want map[string]Pair, since int64) map[string]Pair {
	t.Helper()
	r, err := shm.Open(path, shm.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got := make(map[string]Pair)
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
			got[name] = Pair{Packets: v.Packets, Bytes: v.Bytes}
		}
	}
	return got
}

// wantTotals waits until the mirror shows these totals.
func wantTotals(t *testing.T, path string, want map[string]Pair) {
	t.Helper()
	got := make(map[string]Pair)
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
