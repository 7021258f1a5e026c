package shm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// exchange replaces up to three counters, at times with names and classes that are refused. After a refusal every
// counter is as before.
func (k *machine) exchange(t *rapid.T) {
	leaving := rapid.SliceOfNDistinct(rapid.SampledFrom(append(k.names(), "")), 0, 3, rapid.ID[string]).Draw(t, "leaving")
	leaving = slices.DeleteFunc(leaving, func(name string) bool { return name == "" })
	var old []Handle
	var entries []Entry
	var goesOn []bool
	names := k.names()
	names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(leaving, name) })
	used := map[bool]int{}
	for _, name := range names {
		used[k.m.live[name].entry.Latency]++
	}
	more := map[bool]int{} // by class: entries less counters that leave
	var want error
	for _, name := range leaving {
		c := k.m.live[name]
		e := Entry{
			Name:    rapid.SampledFrom([]string{name, "a", "b", "c", "d", "e", "f", "g"}).Draw(t, "new name"),
			Latency: rapid.Bool().Draw(t, "latency"), Source: "xdp", Valid: true,
		}
		if slices.Contains(names, e.Name) {
			want = ErrExists
		}
		names = append(names, e.Name)
		used[e.Latency]++
		more[c.entry.Latency]--
		more[e.Latency]++
		old, entries, goesOn = append(old, c.entry.Handle), append(entries, e), append(goesOn, rapid.Bool().Draw(t, "goes on"))
	}
	for latency, n := range more {
		if n > 0 && used[latency] > [...]int{k.o.Counters, k.o.LatencyCounters}[classOf(latency)] {
			want = ErrFull
		}
	}
	if len(old) > 0 && len(k.m.gone) > 0 && rapid.IntRange(0, 9).Draw(t, "a handle that is gone") == 0 {
		old[len(old)-1], want = rapid.SampledFrom(k.m.gone).Draw(t, "gone"), ErrGone
	}
	fresh, err := k.w.Exchange(old, entries, goesOn)
	if !errors.Is(err, want) || (err == nil) != (want == nil) {
		t.Fatalf("exchanging %v for %v: %v, want %v", old, entries, err, want)
	}
	if err != nil {
		return
	}
	values := make([]Value, len(old))
	for i, name := range leaving {
		k.m.gone = append(k.m.gone, k.m.live[name].entry.Handle)
		if goesOn[i] {
			values[i] = k.m.live[name].value
		}
		delete(k.m.live, name)
	}
	for i, e := range entries {
		if e.Handle = fresh[i]; slices.Contains(k.m.gone, e.Handle) {
			t.Fatalf("handle %v names a second counter", e.Handle)
		}
		k.m.live[e.Name] = &modelCounter{entry: e, value: values[i]}
	}
}

// A refused Exchange removes no counter, and gives its slots back: Add takes them next.
func TestRefusedExchangeRemovesNoCounter(t *testing.T) {
	for name, c := range map[string]struct {
		second Entry
		want   error
	}{
		"a name of a counter that stays": {Entry{Name: "stays"}, ErrExists},
		"a name twice":                   {Entry{Name: "a"}, ErrExists},
		"a name that is too long":        {Entry{Name: strings.Repeat("x", nameSize+1)}, ErrInvalid},
		"a class without room":           {Entry{Name: "b", Latency: true}, ErrFull},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := heapMirror(t, 64, 1, 0, Options{CoolDown: -1})
			stays, old := mustAdd(t, w, Entry{Name: "stays"}), mustAdd(t, w, Entry{Name: "old"})
			other, record := mustAdd(t, w, Entry{Name: "other"}), mustAdd(t, w, Entry{Name: "record", Latency: true})
			v := Value{Packets: 3, Bytes: 30, SampledAt: 1}
			publishOne(w, old, v)
			fresh, err := w.Exchange([]Handle{old, other}, []Entry{{Name: "a"}, c.second}, []bool{true, true})
			if !errors.Is(err, c.want) || fresh != nil {
				t.Fatalf("%v, %v, want %v", fresh, err, c.want)
			}
			counter, err := r.Counter(old)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := counter.Load(); err != nil || got != v {
				t.Errorf("the counter shows %+v, %v, want %+v", got, err, v)
			}
			for _, h := range []Handle{stays, other, record} {
				if _, err := r.Counter(h); err != nil {
					t.Errorf("%v: %v", h, err)
				}
			}
			if _, err := w.Exchange([]Handle{old, old}, []Entry{{Name: "a"}, {Name: "b"}}, []bool{true, true}); !errors.Is(err, ErrGone) {
				t.Errorf("a counter twice: %v", err)
			}
			if h := mustAdd(t, w, Entry{Name: "next"}); h.Index != other.Index+1 {
				t.Errorf("the next counter has slot %d, want %d: a slot of the refused exchange is lost", h.Index, other.Index+1)
			}
		})
	}
}

// Between two changes of catalogue_changes the fill level changes by at most one counter. Check relies on that.
func TestExchangeRaisesCatalogueChangesWithEachCounter(t *testing.T) {
	w, _ := heapMirror(t, BlockLen, 0, 0, Options{CoolDown: -1})
	old := addN(t, w, 3, false)
	h, levels := w.v.hdr, map[uint64][]uint32{}
	w.hook = func(string) { levels[h.catalogueChanges] = append(levels[h.catalogueChanges], h.countersUsed) }
	if _, err := w.Exchange(old, []Entry{{Name: "a"}, {Name: "b"}, {Name: "c"}}, make([]bool, 3)); err != nil {
		t.Fatal(err)
	}
	for changes, used := range levels {
		if slices.Max(used)-slices.Min(used) > 1 {
			t.Errorf("after %d changes the header says %v live", changes, used)
		}
	}
}

// The mirror grows for an exchange, and counters to be removed do not count against the limit of their class.
func TestExchangeInAFullMirrorCountsOldCountersAsGone(t *testing.T) {
	w, r := heapMirror(t, SegmentLen+1, 0, 0, Options{CoolDown: -1})
	var first Handle
	for i := range SegmentLen {
		if h := mustAdd(t, w, Entry{Name: fmt.Sprint("c", i)}); i == 0 {
			first = h
		}
	}
	exchange := func(old Handle, name string) Handle {
		t.Helper()
		fresh, err := w.Exchange([]Handle{old}, []Entry{{Name: name}}, []bool{false})
		if err != nil {
			t.Fatal(err)
		}
		if h, err := r.Lookup(name); err != nil || h != fresh[0] {
			t.Errorf("%s: %v, %v, want %v", name, h, err, fresh[0])
		}
		if _, err := r.Counter(old); !errors.Is(err, ErrGone) {
			t.Errorf("the counter that left: %v", err)
		}
		return fresh[0]
	}
	second := exchange(first, "in the second segment")
	if second.Index < SegmentLen {
		t.Errorf("slot %d, want one of a second segment", second.Index)
	}
	mustAdd(t, w, Entry{Name: "last"})
	exchange(second, "at the limit")
	if _, err := w.Add(Entry{Name: "one more"}); !errors.Is(err, ErrFull) {
		t.Errorf("one more counter: %v", err)
	}
}

// TestNewLimitsKeepTheCountersOfTheMirror: the limit of a class is raised and lowered under a writer. If
// the mirror has more counters than the new limit, it keeps them.
func TestNewLimitsKeepTheCountersOfTheMirror(t *testing.T) {
	w, r := heapMirror(t, 2, 0, 0, Options{CoolDown: -1})
	full := func(name string) {
		t.Helper()
		if _, err := w.Add(Entry{Name: name}); !errors.Is(err, ErrFull) {
			t.Errorf("adding %s: %v, want ErrFull", name, err)
		}
	}
	set := func(counters int) {
		t.Helper()
		if err := w.SetLimits(counters, 0); err != nil {
			t.Fatal(err)
		}
		if s := r.Status(); s.CounterLimit != counters {
			t.Errorf("the header has the limit %d, want %d", s.CounterLimit, counters)
		}
	}
	a := mustAdd(t, w, Entry{Name: "a"})
	mustAdd(t, w, Entry{Name: "b"})
	full("c")
	set(3)
	mustAdd(t, w, Entry{Name: "c"})
	set(1)
	full("d")
	if err := w.Remove(a); err != nil {
		t.Fatal(err)
	}
	full("d")
	if _, err := r.Lookup("c"); err != nil {
		t.Error(err)
	}
	set(0)
	mustAdd(t, w, Entry{Name: "d"})
	if err := w.SetLimits(MaxCounters+1, 0); !errors.Is(err, ErrInvalid) {
		t.Errorf("a limit that the format cannot hold: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.SetLimits(1, 0); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A reader that lists counters during exchanges finds no flow twice, and no total that falls.
func TestReadersDuringExchangesSeeNoTotalFall(t *testing.T) {
	w, r := heapMirror(t, 3*BlockLen, 0, 0, Options{CoolDown: -1})
	filler := make([]Handle, 2*BlockLen)
	h := mustAdd(t, w, Entry{Name: "a", Text: "flow"})
	for i := range filler {
		filler[i] = mustAdd(t, w, Entry{Name: fmt.Sprint("filler", i)})
	}
	publishOne(w, h, Value{Packets: 1, SampledAt: 1})
	done := make(chan error)
	go func() {
		var err error
		for n := uint64(1); n <= 5000 && err == nil; n++ {
			// The flow takes the slots of a filler, and gives its own: it goes up and down.
			var fresh []Handle
			f := &filler[n%uint64(len(filler))]
			fresh, err = w.Exchange([]Handle{h, *f}, []Entry{{Name: fmt.Sprint("a", n%3), Text: "flow"}, {Name: fmt.Sprint("f", n)}}, []bool{true, false})
			if err == nil {
				h, *f = fresh[0], fresh[1]
				publishOne(w, h, Value{Packets: n, SampledAt: 1})
			}
		}
		done <- err
	}()
	last, lists := uint64(0), 0
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d lists", lists)
			return
		default:
		}
		es, err := r.Entries()
		if err != nil {
			t.Fatal(err)
		}
		lists++
		found := 0
		for _, e := range es {
			if e.Text != "flow" {
				continue
			}
			found++
			c, err := r.Counter(e.Handle)
			if err != nil {
				continue // exchanged meanwhile
			}
			if v, err := c.Load(); err == nil && v.Packets < last {
				t.Errorf("the total goes back from %d to %d", last, v.Packets)
			} else if err == nil {
				last = v.Packets
			}
		}
		if found > 1 {
			t.Errorf("the flow is listed %d times", found)
		}
	}
}
