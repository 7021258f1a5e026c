package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/shm"
)

// raised waits until a condition of that code is, or is not, there.
func raised(t *testing.T, e *Engine, code string, want bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		conditions, err := e.Conditions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(conditions, func(c dataplane.Condition) bool { return string(c.Code) == code }) == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after 30 s: %s is not %v among %+v", code, want, conditions)
		}
	}
}

// A mirror that is removed, replaced, cut short or overwritten while its instance runs is made anew,
// ten times each: totals go on, handles stay, a reader by name follows, and flows are added meanwhile.
func TestADamagedMirrorIsMadeAnew(t *testing.T) {
	overwrite := func(t *testing.T, path string) {
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt(make([]byte, st.Size()), 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []struct {
		name string
		do   func(t *testing.T, path string)
	}{
		{"removed", func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}},
		{"replaced", func(t *testing.T, path string) {
			other := filepath.Join(filepath.Dir(path), "other")
			if err := os.WriteFile(other, []byte("no mirror"), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(other, path); err != nil {
				t.Fatal(err)
			}
		}},
		{"cut short", func(t *testing.T, path string) {
			if err := os.Truncate(path, 100); err != nil {
				t.Fatal(err)
			}
		}},
		{"overwritten", overwrite},
	} {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			b := newHand("hand")
			cfg := config(t, flow.Flow{Name: "a", Match: match(t, "udp")}, flow.Flow{Name: "fast", Match: match(t, "tcp"), Latency: true})
			e := start(t, cfg, b)
			before, err := e.Placements(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			in, err := shm.OpenPath(cfg.Mirror.Path)
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			a, err := in.Counter("a")
			if err != nil {
				t.Fatal(err)
			}
			total := uint64(0)
			for round := range uint64(10) {
				d.do(t, cfg.Mirror.Path)
				b.count("a", backend.Pair{Packets: total + 1000 + round, Bytes: 64})
				total += 1000 + round
				extra := flow.Flow{Name: "extra", Match: match(t, "ipv4 dst 192.0.2.1")}
				if _, err := e.AddFlows(t.Context(), extra); err != nil {
					t.Fatal(err)
				}
				if err := e.RemoveFlows(t.Context(), "extra"); err != nil {
					t.Fatal(err)
				}
				for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
					var v shm.Value
					err := shm.Guard(func() (err error) { v, err = a.Load(); return err })
					if err == nil && v.Packets == total {
						break
					}
					if err == nil && v.Packets > total || err != nil && !errors.Is(err, shm.ErrStale) && !errors.Is(err, shm.ErrTruncated) && !errors.Is(err, shm.ErrFormat) {
						t.Fatalf("round %d: %+v, %v", round, v, err)
					}
					if time.Now().After(end) {
						t.Fatalf("round %d: %+v, %v after 30 s, want %d packets", round, v, err, total)
					}
				}
			}
			raised(t, e, "mirror-remade", true)
			after, err := e.Placements(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for i := range before {
				if before[i].Counter != after[i].Counter {
					t.Errorf("the handle of %s was %+v and is %+v", before[i].Flow.Name, before[i].Counter, after[i].Counter)
				}
			}
			entries, err := in.Reader().Entries()
			if err != nil || len(entries) != 2 || entries[0].Continuity.Discontinuities != 0 || !entries[0].Valid {
				t.Errorf("%+v, %v", entries, err)
			}
		})
	}
}

// A mirror that cannot be made anew is a condition until it can. One whose directory has gone can.
func TestAMirrorThatCannotBeMadeAnewIsACondition(t *testing.T) {
	b := newHand("hand")
	cfg := config(t, flow.Flow{Name: "a", Match: match(t, "udp")})
	e := start(t, cfg, b)
	dir := filepath.Dir(cfg.Mirror.Path)
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, []byte("in the way"), 0o644); err != nil {
		t.Fatal(err)
	}
	raised(t, e, "mirror-lost", true)
	lab.Step(t, awaitCondition(t, e, "mirror-lost", cfg.Mirror.Path, true).Fix, "remove the cause")
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	raised(t, e, "mirror-lost", false)
	if _, err := shm.OpenReader(cfg.Mirror.Path); err != nil {
		t.Error(err)
	}
	if w, err := shm.Create(shm.Options{Path: cfg.Mirror.Path}); !errors.Is(err, shm.ErrInUse) {
		t.Errorf("a second writer in the directory that was made again: %v, %v", w, err)
	}
}

// cutter cuts the mirror short whenever flows are installed or removed: behind the look that a control
// call begins with.
type cutter struct {
	*handBackend
	t    *testing.T
	path string
}

func (b *cutter) cut() {
	if err := os.Truncate(b.path, 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		b.t.Error(err)
	}
}

func (b *cutter) Install(ctx context.Context, flows []backend.Placed) ([]backend.Installed, error) {
	b.cut()
	return b.handBackend.Install(ctx, flows)
}

func (b *cutter) Remove(ctx context.Context, flows []backend.Placed) error {
	b.cut()
	return b.handBackend.Remove(ctx, flows)
}

// A mirror that is cut short while flows are added and removed fails neither.
func TestFlowsChangeWhileTheMirrorIsCutShort(t *testing.T) {
	cfg := config(t)
	b := &cutter{newHand("hand"), t, cfg.Mirror.Path}
	e := start(t, cfg, b)
	var names []string
	for _, name := range []string{"a", "b", "c", "d"} {
		names = append(names, name)
		if _, err := e.AddFlows(t.Context(), flow.Flow{Name: name, Match: match(t, "udp dport "+strconv.Itoa(len(names)))}); err != nil {
			t.Fatal(err)
		}
	}
	in, err := shm.OpenPath(cfg.Mirror.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for i, name := range names {
		b.count(name, backend.Pair{Packets: uint64(i) + 1, Bytes: 64})
		c, err := in.Counter(name)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		if v, err := c.Wait(ctx, uint64(i)+1); err != nil || v.Packets != uint64(i)+1 {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
		cancel()
	}
	if err := e.RemoveFlows(t.Context(), names[1:]...); err != nil {
		t.Error(err)
	}
	raised(t, e, "mirror-lost", false)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		entries, err := in.Reader().Entries()
		if err == nil && len(entries) == 1 && entries[0].Name == "a" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("after 30 s: %+v, %v", entries, err)
		}
	}
}

// A cycle that cannot be published because the mirror was cut short says nothing of the sources.
func TestADamagedMirrorIsNoFailingSource(t *testing.T) {
	cfg := config(t, flow.Flow{Name: "a", Match: match(t, "udp")})
	e := start(t, cfg, newHand("hand"))
	e.ctl.Lock() // nothing makes it anew meanwhile
	defer e.ctl.Unlock()
	if err := os.Truncate(cfg.Mirror.Path, 0); err != nil {
		t.Fatal(err)
	}
	for from, end := e.poller.Cycles(), time.Now().Add(30*time.Second); e.poller.Cycles() < from+3; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the poller stands still")
		}
	}
	for _, c := range e.poller.Conditions() {
		if c.Code == "source-unreadable" {
			t.Errorf("a source is said to fail: %s", c.Text)
		}
	}
	e.catalogue.Repair()
}
