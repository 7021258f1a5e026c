package shm

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"testing"
)

// exchanged makes a mirror with 3000 flows. exchange gives all of them other slots, and names with another first letter where
// rename. The label flow stays.
func exchanged(t *testing.T, rename bool) (r *Reader, exchange func() error) {
	w, r := heapMirror(t, 3*SegmentLen, 0, 0, Options{CoolDown: -1})
	flows := make([]Entry, 3000)
	hs := make([]Handle, len(flows))
	for i := range flows {
		flows[i] = Entry{Name: fmt.Sprint("a", i), Kind: "flow", Labels: map[string]string{"flow": fmt.Sprint(i)}}
		hs[i] = mustAdd(t, w, flows[i])
	}
	goesOn := slices.Repeat([]bool{true}, len(flows))
	return r, func() (err error) {
		for i := range flows {
			if rename {
				flows[i].Name = fmt.Sprintf("%c%d", flows[i].Name[0]^'a'^'b', i)
			}
		}
		hs, err = w.Exchange(hs, flows, goesOn)
		return err
	}
}

// whileExchanging calls look until another goroutine has made 20 exchanges.
func whileExchanging(t *testing.T, exchange func() error, look func()) {
	t.Helper()
	done := make(chan error, 1)
	var ended atomic.Bool
	go func() {
		var err error
		for n := 0; n < 20 && err == nil; n++ {
			err = exchange()
		}
		ended.Store(true)
		done <- err
	}()
	looks := 0
	for ; !ended.Load() && !t.Failed(); looks++ {
		look()
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d looks", looks)
}

// While all flows are being exchanged, each list has each flow exactly once, by index.
func TestListsDuringExchangesAreWhole(t *testing.T) {
	r, exchange := exchanged(t, true)
	whileExchanging(t, exchange, func() {
		es, err := r.Entries()
		if err != nil {
			t.Fatal(err)
		}
		found := make(map[string]int)
		for i, e := range es {
			found[e.Labels["flow"]]++
			if i > 0 && es[i-1].Handle.Index >= e.Handle.Index {
				t.Errorf("index %d is listed before %d", es[i-1].Handle.Index, e.Handle.Index)
			}
		}
		if len(es) != 3000 || len(found) != 3000 {
			t.Errorf("%d entries of %d flows, want 3000", len(es), len(found))
		}
	})
}

// An EntryWatcher beside exchanges has each flow exactly once.
func TestEntryWatcherMissesNoFlowDuringExchanges(t *testing.T) {
	r, exchange := exchanged(t, true)
	c, flows := r.WatchEntries(), make(map[Handle]string)
	whileExchanging(t, exchange, func() {
		if err := c.Update(func(e Entry) { flows[e.Handle] = e.Labels["flow"] }, func(h Handle) { delete(flows, h) }); err != nil {
			t.Fatal(err)
		}
		if n := len(slices.Compact(slices.Sorted(maps.Values(flows)))); n != 3000 || len(flows) != 3000 {
			t.Errorf("%d entries of %d flows, want 3000", len(flows), n)
		}
	})
}

// A flow that keeps its name can be found at any time during an exchange.
func TestLookupFindsKeptNamesDuringExchanges(t *testing.T) {
	r, exchange := exchanged(t, false)
	whileExchanging(t, exchange, func() {
		if es, err := r.Find("a7", "a2999"); err != nil || len(es) != 2 {
			t.Errorf("found %d entries, %v, want 2", len(es), err)
		}
		for _, name := range []string{"a7", "a2999"} {
			if _, err := r.Lookup(name); err != nil {
				t.Error(err)
			}
		}
	})
}

// An exchange happens after the first load of a lookup, so the table of names looks up to date and is not.
func TestLookupFindsANameExchangedMeanwhile(t *testing.T) {
	w, r := heapMirror(t, SegmentLen, 0, 0, Options{})
	e := Entry{Name: "a", Kind: "flow"}
	old := mustAdd(t, w, e)
	if h, err := r.Lookup("a"); err != nil || h != old {
		t.Fatal(h, err)
	}
	before := w.v.hdr.catalogueChanges
	fresh, err := w.Exchange([]Handle{old}, []Entry{e}, []bool{true})
	if err != nil {
		t.Fatal(err)
	}
	w.v.hdr.catalogueChanges = before
	if h, err := r.Lookup("a"); err != nil || h != fresh[0] {
		t.Errorf("%v, %v, want %v", h, err, fresh[0])
	}
}

// While a writer is stuck in an exchange, Lookup returns ErrBusy and not ErrNotFound, until the writer has ended.
func TestLookupIsBusyWhileALongExchangeLasts(t *testing.T) {
	w, r := heapMirror(t, SegmentLen, 0, 0, Options{})
	mustAdd(t, w, Entry{Name: "other", Kind: "flow"})
	w.setSwapping(true)
	w.v.hdr.heartbeatPeriod = math.MaxInt64
	w.SetState(Run)
	for range 2 {
		if _, err := r.Lookup("a"); !errors.Is(err, ErrBusy) {
			t.Errorf("while the writer lives: %v", err)
		}
	}
	w.SetState(Fail)
	if _, err := r.Lookup("a"); !errors.Is(err, ErrNotFound) {
		t.Errorf("after its end: %v", err)
	}
	w.setSwapping(false)
}
