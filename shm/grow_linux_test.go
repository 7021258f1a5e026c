package shm

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab/need"
)

func mustGrow(t testing.TB, w *Writer, counters, latency int) Growth {
	t.Helper()
	g, err := w.Grow(counters, latency)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// A mirror that is full grows while its writer works: what was there stays,
// readers of the old file are told and find the new one.
func TestGrowAtRunTime(t *testing.T) {
	path := mirrorPath(t)
	w := mustCreate(t, with(small, path))
	hs := addN(t, w, 64, false)
	l := mustAdd(t, w, Entry{Name: "l", Latency: true})
	gone := mustAdd(t, w, Entry{Name: "gone", Latency: true})
	if err := w.Remove(gone); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Add(Entry{Name: "one more"}); !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	publish := func(n uint64) {
		w.BeginCycle()
		w.PublishBlock(0, &Block{patterned(n), patterned(n)})
		w.PublishRecord(l.Index, patterned(n))
		w.AppendHistory(l, patterned(n))
		w.EndCycle(Now())
	}
	publish(1)
	old := mustOpen(t, path)
	was := old.Status()
	held := mustCounter(t, old, l)

	g := mustGrow(t, w, 65, 3)
	if s := mustOpen(t, path).Status(); s.State != Run || !s.Alive || s.Cycle != 1 || s.HeartbeatPeriod != was.HeartbeatPeriod {
		t.Errorf("before the next cycle: %+v", s)
	}
	if c, n := w.Capacity(); c != 128 || n != 3 {
		t.Fatal(c, n)
	}
	if h := g.Handle(hs[63]); h != hs[63] {
		t.Errorf("handle %v moved to %v", hs[63], h)
	}
	if l = g.Handle(l); l.Index != 128 {
		t.Errorf("latency handle %v", l)
	}
	mustAdd(t, w, Entry{Name: "one more"})
	if h := mustAdd(t, w, Entry{Name: "m", Latency: true}); h.Index != 129 || h.Generation != 2 {
		t.Errorf("the slot that was freed before is %v", h)
	}
	publish(2)

	if s := old.Status(); s.State != Superseded || s.Alive || s.Cycle != 1 {
		t.Errorf("old file: %+v", s)
	}
	if v, err := held.Load(); err != nil || v != patterned(1) {
		t.Error(v, err)
	}
	r, err := old.Follow()
	if err != nil || r == old {
		t.Fatal(r == old, err)
	}
	defer r.Close()
	if again, err := r.Follow(); again != r || err != nil {
		t.Error("follows itself to another", err)
	}
	if s := r.Status(); s.State != Run || !s.Alive || s.Takeovers != 0 || !s.Started.Equal(was.Started) || s.Generation == was.Generation ||
		s.Generation != old.v.hdr.successor || s.Generation != w.Generation() || s.Cycle != 2 || s.CountersUsed != 65 || s.RecordsUsed != 2 || s.CatalogueChanges <= was.CatalogueChanges {
		t.Errorf("new file: %+v", s)
	}
	for _, h := range []Handle{hs[0], l} {
		c := mustCounter(t, r, h)
		if v, err := c.Load(); err != nil || v != patterned(2) {
			t.Error(h, v, err)
		}
	}
	cur, err := r.History()
	if err != nil {
		t.Fatal(err)
	}
	cur.Rewind()
	recs := make([]Record, 4)
	if n, lost, err := cur.Next(recs); n != 2 || lost != 0 || err != nil || recs[0].Handle != l || recs[1].Handle != l {
		t.Error(n, lost, err, recs)
	}
	// Nothing to do, and less.
	for range 2 {
		if g := mustGrow(t, w, 1, 0); g.Handle(l) != l || w.Generation() != r.Status().Generation {
			t.Error("grew for nothing")
		}
	}
	if _, err := w.Grow(maxCounters+1, 0); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Grow(1000, 0); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	// The next writer finds the larger one.
	w2 := mustCreate(t, with(small, path))
	if n := len(w2.Entries()); n != 67 {
		t.Errorf("%d entries", n)
	}
}

// Where there is no room for a larger file, or it cannot be named, the writer
// goes on in the one that it has, and readers with it.
func TestGrowFails(t *testing.T) {
	dir := filepath.Dir(mirrorPath(t))
	need.Cap(t, "sys_admin")
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=512k,mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	path := filepath.Join(dir, "m.mirror")
	o := with(small, path)
	var atStep func(string)
	o.hook = func(step string) {
		if atStep != nil {
			atStep(step)
		}
	}
	w, err := Create(o)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	h := mustAdd(t, w, Entry{Name: "a"})
	r := mustOpen(t, path)
	c := mustCounter(t, r, h)
	goesOn := func(n uint64) {
		t.Helper()
		w.BeginCycle()
		w.PublishBlock(0, &Block{patterned(n)})
		w.EndCycle(Now())
		if v, err := c.Load(); err != nil || v != patterned(n) {
			t.Error(v, err)
		}
		if s := r.Status(); s.State != Run || !s.Alive || r.v.hdr.successor != 0 {
			t.Errorf("%+v", s)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) != 0 {
			t.Errorf("left behind: %v", left)
		}
		checkFile(t, path)
	}
	goesOn(1)
	if _, err := w.Grow(4096, 0); !errors.Is(err, ErrFull) || !errors.Is(err, unix.ENOSPC) {
		t.Error(err)
	}
	goesOn(2)
	atStep = func(step string) {
		if step == "create-superseded" { // the draft is gone: it cannot be named
			left, _ := filepath.Glob(filepath.Join(dir, ".*"))
			for _, f := range left {
				if err := os.Remove(f); err != nil {
					t.Error(err)
				}
			}
			if s := r.Status(); s.State != Superseded {
				t.Errorf("%+v", s)
			}
		}
	}
	if _, err := w.Grow(128, 0); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	goesOn(3)
	atStep = nil
	mustGrow(t, w, 128, 0)
	if next, err := r.Follow(); err != nil || next == r {
		t.Error(next == r, err)
	}
}

// A latency counter has another handle in the larger file. The words that a
// device writes for it are still its own there, and given back they are nobody's.
func TestGrowMovesWhoHasDeviceWords(t *testing.T) {
	path := mirrorPath(t)
	w := mustCreate(t, with(small, path))
	seg, err := w.DeviceSegment(2)
	if err != nil {
		t.Fatal(err)
	}
	addN(t, w, 64, false)
	h := mustAdd(t, w, Entry{Name: "l", Latency: true})
	s := mustSlot(t, seg)
	if err := w.SetDevice(h, s, 5, 6, 255); err != nil {
		t.Fatal(err)
	}
	moved := mustGrow(t, w, 128, 2).Handle(h)
	other := mustAdd(t, w, Entry{Name: "has the old handle's place"})
	if other.Index != h.Index {
		t.Fatalf("%v, not in the place of %v", other, h)
	}
	r := mustOpen(t, path)
	if _, err := r.Device(other); !errors.Is(err, ErrNoDevice) {
		t.Error(err)
	}
	wantDevice(t, mustDevice(t, r, moved), 5, 6)
	if err := w.SetDevice(other, s, 0, 0, 255); !errors.Is(err, ErrExists) {
		t.Errorf("the slot is taken for the old handle's: %v", err)
	}
	if err := w.SetDevice(moved, s, 7, 8, 255); err != nil {
		t.Error(err)
	}
	wantDevice(t, mustDevice(t, r, moved), 7, 8)
	s.Free()
	if _, err := r.Device(moved); !errors.Is(err, ErrNoDevice) {
		t.Errorf("given back, and still named: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	// What the next writer knows of the last totals moves as well.
	w = mustCreate(t, with(small, path))
	if seg, err = w.DeviceSegment(1); err != nil {
		t.Fatal(err)
	}
	if err := w.SetDevice(moved, mustSlot(t, seg), 50, 60, 255); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	o := with(small, path)
	o.Counters = 192
	w = mustCreate(t, o)
	again := Handle{Index: moved.Index + 64, Generation: moved.Generation}
	if comp, errs, ok := w.LastDevice(again); comp != 50 || errs != 60 || !ok {
		t.Errorf("last %d and %d, %v", comp, errs, ok)
	}
	further := mustGrow(t, w, 256, 2).Handle(again)
	if comp, errs, ok := w.LastDevice(further); comp != 50 || errs != 60 || !ok {
		t.Errorf("last %d and %d, %v, after it grew", comp, errs, ok)
	}
}
