package shm

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// watchedEntries keeps the entries that an EntryWatcher reports.
type watchedEntries struct {
	ew      *EntryWatcher
	entries map[Handle]Entry
	reports int
}

func followEntries(r *Reader) *watchedEntries {
	return &watchedEntries{ew: r.WatchEntries(), entries: map[Handle]Entry{}}
}

func (f *watchedEntries) update() error {
	return f.ew.Update(
		func(e Entry) { f.entries[e.Handle] = e; f.reports++ },
		func(h Handle) { delete(f.entries, h); f.reports++ })
}

// equals compares the followed entries with Entries.
func (f *watchedEntries) equals(r *Reader) error {
	want, err := r.Entries()
	if err != nil {
		return err
	}
	got := slices.SortedFunc(maps.Values(f.entries), func(a, b Entry) int { return int(a.Handle.Index) - int(b.Handle.Index) })
	if diff := cmp.Diff(want, got); diff != "" {
		return errors.New(diff)
	}
	return nil
}

// TestEntryWatcherReportsTheEntriesOfTheMirror: after each Update the reported entries are those of the mirror, and
// Update reports only changed ones.
func TestEntryWatcherReportsTheEntriesOfTheMirror(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w, r := heapMirror(t, 256, 64, 0, Options{CoolDown: -1})
		f := followEntries(r)
		var live []Handle
		n := 0
		for range rapid.IntRange(1, 40).Draw(rt, "updates") {
			before := f.reports
			touched := map[uint32]bool{}
			for range rapid.IntRange(0, 6).Draw(rt, "changes") {
				var h Handle
				if len(live) > 0 {
					h = rapid.SampledFrom(live).Draw(rt, "counter")
				}
				var err error
				switch op := rapid.IntRange(0, 3).Draw(rt, "op"); {
				case op == 0 || len(live) == 0:
					n++
					h, err = w.Add(Entry{Name: fmt.Sprint("c", n), Kind: "flow", Latency: rapid.Bool().Draw(rt, "latency"), Valid: true})
					live = append(live, h)
				case op == 1:
					err = w.Remove(h)
					live = slices.DeleteFunc(live, func(o Handle) bool { return o == h })
				case op == 2:
					err = w.SetFlags(h, true, rapid.Bool().Draw(rt, "stale"), false)
				default:
					err = w.SetSource(h, fmt.Sprint("source ", n), "l2")
				}
				if err != nil {
					rt.Fatal(err)
				}
				touched[h.Index] = true
			}
			if err := f.update(); err != nil {
				rt.Fatal(err)
			}
			if err := f.equals(r); err != nil {
				rt.Fatal(err)
			}
			if got := f.reports - before; got > 2*len(touched) {
				rt.Fatalf("%d reports after changes of %d slots", got, len(touched))
			}
		}
	})
}

// TestEntryWatcherLosesNoChangeBesideAWriter: an Update beside a busy writer loses no change.
func TestEntryWatcherLosesNoChangeBesideAWriter(t *testing.T) {
	w, r := heapMirror(t, 256, 0, 0, Options{CoolDown: -1})
	f := followEntries(r)
	hs := addN(t, w, 100, false)
	var changing sync.WaitGroup
	stop := make(chan struct{})
	changing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			h := &hs[i%len(hs)]
			var err error
			if i%3 == 0 {
				err = w.SetFlags(*h, true, i%2 == 0, false)
			} else if err = w.Remove(*h); err == nil {
				*h, err = w.Add(Entry{Name: fmt.Sprint("n", i), Kind: "flow"})
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 2000 {
		if err := f.update(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	changing.Wait()
	if err := f.update(); err != nil {
		t.Fatal(err)
	}
	if err := f.equals(r); err != nil {
		t.Error(err)
	}
}

// TestEntryWatcherReportsAChangeBehindTheScanNextTime: if an entry changes after the scan passed it, the next Update
// reports it.
func TestEntryWatcherReportsAChangeBehindTheScanNextTime(t *testing.T) {
	w, r := heapMirror(t, 64, 0, 0, Options{})
	hs := addN(t, w, 3, false)
	c := r.WatchEntries()
	var source string
	keep := func(e Entry) {
		if e.Handle == hs[0] {
			source = e.Source
		}
		if e.Handle == hs[2] {
			if err := w.SetSource(hs[0], "behind", "l2"); err != nil {
				t.Error(err)
			}
		}
	}
	for range 2 {
		if err := c.Update(keep, func(Handle) {}); err != nil {
			t.Fatal(err)
		}
	}
	if source != "behind" {
		t.Errorf("source %q, want %q", source, "behind")
	}
}

// TestEntryWatcherFailsOnAFileGivenUpOrAClosedReader: Update returns ErrStale and ErrClosed.
func TestEntryWatcherFailsOnAFileGivenUpOrAClosedReader(t *testing.T) {
	w, r := heapMirror(t, 64, 0, 0, Options{})
	c := r.WatchEntries()
	addN(t, w, 3, false)
	if err := c.Update(func(Entry) {}, func(Handle) {}); err != nil {
		t.Fatal(err)
	}
	w.v.hdr.replaced = 1
	if err := c.Update(func(Entry) {}, func(Handle) {}); !errors.Is(err, ErrStale) {
		t.Errorf("replaced: %v", err)
	}
	r.Close()
	if err := c.Update(func(Entry) {}, func(Handle) {}); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
