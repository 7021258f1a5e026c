package shm

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// model is a mirror without the memory: names, values, a list.
type model struct {
	live    map[string]*modelCounter
	gone    []Handle // handles that were live once
	history []Record
	cycle   uint64
}

type modelCounter struct {
	entry Entry
	value Value
}

// machine drives a writer and compares a reader's results with the model.
type machine struct {
	t     *testing.T
	open  func() // takes over the region, or makes one
	o     Options
	w     *Writer
	r     *Reader
	cur   *Cursor
	curAt uint64
	held  map[Handle]*HandleCounter
	m     model
}

// Writer and reader must behave like a plain map, and through takeovers too.
func TestMirrorBehavesAsAMapThroughTakeovers(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		last, v := newHeap(t, 4, 8)
		v.ready()
		mk := &machine{t: t, held: map[Handle]*HandleCounter{}, m: model{live: map[string]*modelCounter{}}}
		mk.o = Options{Counters: 5, LatencyCounters: 3, CoolDown: -1, Path: "heap"}.withDefaults()
		mk.open = func() {
			v, err := attach(last)
			if err != nil {
				rt.Fatal(err)
			}
			if mk.w, err = newWriter(mk.o, v, nil); err != nil {
				rt.Fatal(err)
			}
			if mk.r == nil || rapid.Bool().Draw(rt, "another reader") {
				mk.r = mustAttach(t, last)
			}
			if mk.cur, err = mk.r.History(); err != nil {
				rt.Fatal(err)
			}
			mk.curAt = uint64(len(mk.m.history))
		}
		mk.open()
		rt.Repeat(map[string]func(*rapid.T){
			"add":      mk.add,
			"remove":   mk.remove,
			"exchange": mk.exchange,
			"cycle":    mk.publish,
			"update":   mk.update,
			"reopen":   mk.reopen,
			"grow":     mk.growNow,
			"history":  mk.readHistory,
			"snapshot": mk.snapshot,
			"":         mk.check,
		})
		noProblems(t, checkBytes(last.b))
	})
}

func (k *machine) names() []string { return slices.Sorted(maps.Keys(k.m.live)) }

func (k *machine) add(t *rapid.T) {
	e := Entry{
		Name:    rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g"}).Draw(t, "name"),
		Kind:    "flow",
		Latency: rapid.Bool().Draw(t, "latency"),
		Text:    rapid.StringN(0, 40, 400).Draw(t, "text"),
		Valid:   rapid.Bool().Draw(t, "valid"),
	}
	if rapid.Bool().Draw(t, "labelled") {
		e.Labels = map[string]string{"k": rapid.StringMatching(`[a-z=]{0,20}`).Draw(t, "label")}
	}
	_, exists := k.m.live[e.Name]
	used := 0
	for _, c := range k.m.live {
		if c.entry.Latency == e.Latency {
			used++
		}
	}
	limit := [...]int{k.o.Counters, k.o.LatencyCounters}[classOf(e.Latency)]
	h, err := k.w.Add(e)
	switch {
	case exists:
		if !errors.Is(err, ErrExists) {
			t.Fatalf("second %q: %v", e.Name, err)
		}
	case used == limit:
		if !errors.Is(err, ErrFull) {
			t.Fatalf("%d of %d used: %v", used, limit, err)
		}
	case err != nil:
		t.Fatal(err)
	default:
		if slices.Contains(k.m.gone, h) {
			t.Fatalf("handle %v names a second counter", h)
		}
		k.m.live[e.Name] = &modelCounter{entry: e}
		k.m.live[e.Name].entry.Handle = h
	}
}

func (k *machine) pick(t *rapid.T) *modelCounter {
	if len(k.m.live) == 0 {
		t.Skip("no counter")
	}
	return k.m.live[rapid.SampledFrom(k.names()).Draw(t, "which")]
}

func (k *machine) remove(t *rapid.T) {
	c := k.pick(t)
	if err := k.w.Remove(c.entry.Handle); err != nil {
		t.Fatal(err)
	}
	delete(k.m.live, c.entry.Name)
	k.m.gone = append(k.m.gone, c.entry.Handle)
}

func (k *machine) publish(t *rapid.T) {
	k.m.cycle++
	if n := k.w.BeginCycle(); n != k.m.cycle {
		t.Fatalf("cycle %d, want %d", n, k.m.cycle)
	}
	blocks := make([]Block, segmentBlocks*k.w.v.declared())
	for i := range blocks { // noise in rows of no counter
		for j := range blocks[i] {
			blocks[i][j] = Value{99, 99, 99}
		}
	}
	for _, name := range k.names() {
		c := k.m.live[name]
		c.value = Value{rapid.Uint64().Draw(t, "packets"), rapid.Uint64().Draw(t, "bytes"), rapid.Int64Range(0, 5).Draw(t, "at")}
		if c.entry.Latency {
			k.w.PublishRecord(c.entry.Handle.Index, c.value)
		} else {
			blocks[c.entry.Handle.Index/64][c.entry.Handle.Index%64] = c.value
		}
		if rapid.Bool().Draw(t, "kept") {
			k.w.AppendHistory(c.entry.Handle, c.value)
			k.m.history = append(k.m.history, Record{uint64(len(k.m.history) + 1), c.entry.Handle, c.value, k.m.cycle, 0})
		}
	}
	for i := range blocks {
		k.w.PublishBlock(i, &blocks[i])
	}
	k.w.EndCycle(Now())
}

// growNow makes a segment, of which the reader learns by meeting it: nothing moves.
func (k *machine) growNow(t *rapid.T) {
	n, class := k.w.v.declared(), rapid.IntRange(0, 1).Draw(t, "class")
	counters, latency := k.w.v.capacity()
	if [...]int{counters, latency}[class] == 2*SegmentLen {
		t.Skip("large enough: the region holds two of each class")
	}
	if err := growBy(k.w, class); err != nil || k.w.v.declared() != n+1 {
		t.Fatal(k.w.v.declared(), err)
	}
}

func (k *machine) update(t *rapid.T) {
	c := k.pick(t)
	e := &c.entry
	e.Source = rapid.StringMatching(`[a-z0-9 ]{0,20}`).Draw(t, "source")
	e.ByteBasis = rapid.SampledFrom([]string{"", "l2", "l3"}).Draw(t, "basis")
	e.Stale = rapid.Bool().Draw(t, "stale")
	e.Continuity.BasePackets = rapid.Uint64().Draw(t, "base")
	if err := errors.Join(k.w.SetSource(e.Handle, e.Source, e.ByteBasis), k.w.SetFlags(e.Handle, e.Valid, e.Stale, false),
		k.w.SetContinuity(e.Handle, e.Continuity)); err != nil {
		t.Fatal(err)
	}
}

// reopen is another writer taking over, after a good end or a kill, and at
// times with other limits.
func (k *machine) reopen(t *rapid.T) {
	if rapid.Bool().Draw(t, "closed") {
		if err := k.w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if rapid.IntRange(0, 9).Draw(t, "limits") == 0 {
		k.o.Counters, k.o.LatencyCounters = rapid.IntRange(7, 8).Draw(t, "counters"), rapid.IntRange(7, 8).Draw(t, "records")
	}
	k.open()
}

func (k *machine) readHistory(t *rapid.T) {
	dst := make([]Record, rapid.IntRange(1, 12).Draw(t, "n"))
	n, lost, err := k.cur.Next(dst)
	if err != nil {
		t.Fatal(err)
	}
	k.curAt += lost
	for _, rec := range dst[:n] {
		if want := k.m.history[k.curAt]; rec != want {
			t.Fatalf("record %+v, want %+v", rec, want)
		}
		k.curAt++
	}
	left := uint64(len(k.m.history)) - k.curAt
	if n < len(dst) && left != 0 {
		t.Fatalf("%d of %d records read, %d lost, %d left", n, len(dst), lost, left)
	}
	if lost > 0 && n > 0 && uint64(len(k.m.history))-dst[0].Position+1 != uint64(len(k.r.v.history)) {
		t.Fatalf("%d lost, though record %d was not the oldest of %d", lost, dst[0].Position, len(k.m.history))
	}
}

func (k *machine) snapshot(t *rapid.T) {
	var all, some Snapshot
	if err := k.r.Snapshot(&all); err != nil {
		t.Fatal(err)
	}
	var hs []Handle
	low, high, sampled := int64(1<<62), int64(0), false
	for _, name := range k.names() {
		c := k.m.live[name]
		hs = append(hs, c.entry.Handle)
		if v, err := all.Value(c.entry.Handle); err != nil || v != c.value {
			t.Fatalf("%s: %v, want %v, %v", name, v, c.value, err)
		}
		if at := c.value.SampledAt; at != 0 {
			low, high, sampled = min(low, at), max(high, at), true
		}
	}
	for _, h := range k.m.gone {
		if _, err := all.Value(h); !errors.Is(err, ErrGone) {
			t.Fatalf("%v: %v", h, err)
		}
	}
	hs = append(hs, k.m.gone...)
	if err := k.r.SnapshotOf(&some, hs); err != nil || some.Gone != len(k.m.gone) {
		t.Fatalf("%d gone, want %d, %v", some.Gone, len(k.m.gone), err)
	}
	for i, name := range k.names() {
		if some.List[i] != k.m.live[name].value {
			t.Fatalf("%s: %v, want %v", name, some.List[i], k.m.live[name].value)
		}
	}
	for what, l := range map[string]Label{"all": all.Label, "some": some.Label} {
		if sampled && (l.Oldest != low || l.Newest != high || l.SkewNanos != high-low) || !sampled && l != (Label{}) {
			t.Fatalf("%s: label %+v, want %d to %d", what, l, low, high)
		}
	}
}

// check compares everything that a reader can see.
func (k *machine) check(t *rapid.T) {
	es, err := k.r.Entries()
	if err != nil || len(es) != len(k.m.live) {
		t.Fatalf("%d entries, want %d, %v", len(es), len(k.m.live), err)
	}
	for _, got := range es {
		c := k.m.live[got.Name]
		if c == nil {
			t.Fatalf("entry %q is not in the model", got.Name)
		}
		want := c.entry
		want.AddedAt, want.Text = got.AddedAt, got.Text // time, and text that is cut: see TestAddRefusesEntriesThatDoNotFit
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("entry %+v, want %+v", got, want)
		}
		if h, err := k.r.Lookup(got.Name); err != nil || h != want.Handle {
			t.Fatalf("lookup of %s: %v, %v", got.Name, h, err)
		}
		if k.held[want.Handle] == nil {
			held, err := k.r.Counter(want.Handle)
			if err != nil {
				t.Fatal(err)
			}
			k.held[want.Handle] = &held
		}
	}
	for h, held := range k.held {
		v, err := held.Load()
		i := slices.IndexFunc(es, func(e Entry) bool { return e.Handle == h })
		switch {
		case i < 0:
			if !errors.Is(err, ErrGone) {
				t.Fatalf("%v is gone, and reads %v, %v", h, v, err)
			}
		case err != nil || v != k.m.live[es[i].Name].value:
			t.Fatalf("%v reads %v, want %v, %v", h, v, k.m.live[es[i].Name].value, err)
		}
	}
	s := k.r.Status()
	if s.CountersUsed+s.RecordsUsed != len(es) || s.Cycle != k.m.cycle || s.HistoryTail != uint64(len(k.m.history)) {
		t.Fatalf("status %+v", s)
	}
	sameParity(k.t, k.w)
	if ps := checkBytes(k.w.heap()); len(ps) > 0 {
		t.Fatalf("%d broken invariants: %v", len(ps), ps[0])
	}
}
