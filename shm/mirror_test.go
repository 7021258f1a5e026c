package shm

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLoadReturnsWhatWasPublished(t *testing.T) {
	w, r := heapMirror(t, 128, 4, 8, Options{CoolDown: -1, HeartbeatPeriod: time.Hour})
	a := mustAdd(t, w, Entry{Name: "a", Kind: "flow", Text: "udp dport 1", Labels: map[string]string{"z": "1", "a": "b=c"},
		Source: "xdp eth0 native", ByteBasis: "l2", Valid: true, Continuity: Continuity{1, 2, 3, 4, 5}})
	l := mustAdd(t, w, Entry{Name: "é 計 ع", Latency: true})
	if (a != Handle{0, 1}) || (l != Handle{4096, 1}) {
		t.Fatalf("handles %v, %v", a, l)
	}
	ca, cl := mustCounter(t, r, a), mustCounter(t, r, l)
	for _, c := range []HandleCounter{ca, cl} {
		if v, err := c.Load(); err != nil || v != (Value{}) {
			t.Fatalf("before the first cycle: %v, %v", v, err)
		}
	}
	for n := range uint64(5) {
		if c := w.BeginCycle(); c != n+1 {
			t.Fatalf("cycle %d, want %d", c, n+1)
		}
		vals := Block{0: {n, 2 * n, int64(n + 1)}, 1: {7, 7, 7}} // row 1 belongs to no counter
		w.PublishBlock(0, &vals)
		w.PublishRecord(l.Index, Value{3 * n, 4 * n, int64(n + 2)})
		w.PublishRecord(l.Index+1, Value{9, 9, 9}) // belongs to no counter
		w.EndCycle(Now())
		for range 2 { // the second Load takes the quick path
			if v, err := ca.Load(); err != nil || v != vals[0] {
				t.Fatalf("block: %v, %v", v, err)
			}
			if v, err := cl.Load(); err != nil || v != (Value{3 * n, 4 * n, int64(n + 2)}) {
				t.Fatalf("record: %v, %v", v, err)
			}
		}
	}
	h, err := r.Lookup("a")
	if err != nil || h != a {
		t.Fatalf("lookup: %v, %v", h, err)
	}
	got, err := r.Entry(a)
	if err != nil {
		t.Fatal(err)
	}
	want := Entry{Handle: a, Name: "a", Kind: "flow", Text: "udp dport 1", Labels: map[string]string{"z": "1", "a": "b=c"},
		Source: "xdp eth0 native", ByteBasis: "l2", Valid: true, Continuity: Continuity{1, 2, 3, 4, 5}, AddedAt: got.AddedAt}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
	if s := r.Status(); s.State != Run || !s.Alive || s.Cycle != 5 || s.CountersUsed != 1 || s.RecordsUsed != 1 || s.Counters != 4096 || s.Records != 4096 || s.CounterLimit != 128 || s.RecordLimit != 4 {
		t.Fatalf("status %+v", s)
	}
}

func TestRemovedCounterIsGoneForEver(t *testing.T) {
	w, r := heapMirror(t, 64, 1, 0, Options{CoolDown: -1})
	for _, latency := range []bool{false, true} {
		old := mustAdd(t, w, Entry{Name: "old", Latency: latency})
		c := mustCounter(t, r, old)
		publish := func(h Handle, v Value) {
			w.BeginCycle()
			if latency {
				w.PublishRecord(h.Index, v)
			} else {
				w.PublishBlock(0, &Block{v})
			}
			w.EndCycle(Now())
		}
		publish(old, Value{1, 1, 1})
		if v, err := c.Load(); err != nil || v.Packets != 1 {
			t.Fatal(v, err)
		}
		var before, after Snapshot
		if err := r.Snapshot(&before); err != nil {
			t.Fatal(err)
		}
		if err := w.Remove(old); err != nil {
			t.Fatal(err)
		}
		if v, err := c.Load(); !errors.Is(err, ErrGone) || v != (Value{}) {
			t.Fatalf("after Remove: %v, %v", v, err)
		}
		fresh := mustAdd(t, w, Entry{Name: "new", Latency: latency})
		if fresh.Index != old.Index || fresh.Generation != old.Generation+1 {
			t.Fatalf("slot was not reused: %v after %v", fresh, old)
		}
		publish(fresh, Value{2, 2, 2})
		for range 3 {
			if _, err := c.Load(); !errors.Is(err, ErrGone) {
				t.Fatalf("after reuse: %v", err)
			}
		}
		if _, err := r.Counter(old); !errors.Is(err, ErrGone) {
			t.Fatal(err)
		}
		if _, err := r.Lookup("old"); !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
		if h, err := r.Lookup("new"); err != nil || h != fresh {
			t.Fatal(h, err)
		}
		// A snapshot from before the reuse holds the old counter's value; it
		// must not be given out for the new one.
		if v, err := before.Value(fresh); err != nil || v != (Value{}) {
			t.Fatalf("old snapshot, new handle: %v, %v", v, err)
		}
		if _, err := before.Value(old); !errors.Is(err, ErrGone) {
			t.Fatal(err)
		}
		if err := r.Snapshot(&after); err != nil {
			t.Fatal(err)
		}
		if v, err := after.Value(fresh); err != nil || v.Packets != 2 {
			t.Fatal(v, err)
		}
		if err := r.SnapshotOf(&after, []Handle{old, fresh}); err != nil || after.Gone != 1 || after.List[0] != (Value{}) || after.List[1].Packets != 2 {
			t.Fatalf("%v %+v", err, after.List)
		}
		if err := w.Remove(old); !errors.Is(err, ErrGone) {
			t.Fatal(err)
		}
		if err := w.Remove(fresh); err != nil {
			t.Fatal(err)
		}
	}
}

// The removal of a neighbor sends Load the slow way once, and the quick way works again afterwards.
func TestRemovingANeighborSendsLoadTheSlowWayOnce(t *testing.T) {
	w, r := heapMirror(t, 64, 0, 0, Options{CoolDown: -1})
	hs := addN(t, w, 2, false)
	c := mustCounter(t, r, hs[0])
	w.BeginCycle()
	w.PublishBlock(0, &Block{{5, 6, 7}, {1, 1, 1}})
	w.EndCycle(Now())
	if err := w.Remove(hs[1]); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if v, err := c.Load(); err != nil || v != (Value{5, 6, 7}) {
			t.Fatal(v, err)
		}
	}
	if epochOf(c.last) != 1 {
		t.Fatalf("epoch %d kept, want 1", epochOf(c.last))
	}
}

func TestSaturatedEpochIsNeverTrusted(t *testing.T) {
	w, r := heapMirror(t, 64, 0, 0, Options{CoolDown: -1})
	hs := addN(t, w, 2, false)
	b := w.v.slot(0).block()
	*b.seq() |= (epochMax - 1) << epochShift
	*b.intent() = *b.seq()
	b.copy(*b.seq()).epoch = epochMax - 1
	c := mustCounter(t, r, hs[0])
	for range 3 { // past the end
		if err := w.Remove(hs[1]); err != nil {
			t.Fatal(err)
		}
		hs[1] = mustAdd(t, w, Entry{Name: "again"})
		if v, err := c.Load(); err != nil || v != (Value{}) {
			t.Fatal(v, err)
		}
	}
	if epochOf(*b.seq()) != epochMax || c.last != 0 {
		t.Fatalf("epoch %d, kept %#x", epochOf(*b.seq()), c.last)
	}
	if err := w.Remove(hs[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Load(); !errors.Is(err, ErrGone) {
		t.Fatal(err)
	}
	if hs[0] = mustAdd(t, w, Entry{Name: "reuse"}); hs[0].Index != 0 {
		t.Fatal("slot was not reused")
	}
	if _, err := c.Load(); !errors.Is(err, ErrGone) {
		t.Fatal(err)
	}
}

func TestFreedSlotCoolsDownBeforeReuse(t *testing.T) {
	w, _ := heapMirror(t, 64, 4096, 0, Options{CoolDown: 50 * time.Millisecond})
	h := mustAdd(t, w, Entry{Name: "a", Latency: true})
	freed := time.Now()
	if err := w.Remove(h); err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		again := mustAdd(t, w, Entry{Name: fmt.Sprint("b", n), Latency: true})
		if since := time.Since(freed); again.Index == h.Index {
			if since < 50*time.Millisecond || again.Generation != 2 {
				t.Errorf("reused after %v as %v", since, again)
			}
			return
		} else if since > 20*time.Second {
			t.Fatal("is never reused")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// If the only free slots cool down, the mirror grows instead of refusing a counter. If
// it cannot grow, the error says when a slot will be free.
func TestMirrorGrowsRatherThanWaitForACoolDown(t *testing.T) {
	w, r := heapMirror(t, 4097, 0, 0, Options{CoolDown: time.Hour})
	hs := addN(t, w, SegmentLen, false)
	if err := w.Remove(hs[7]); err != nil {
		t.Fatal(err)
	}
	if h := mustAdd(t, w, Entry{Name: "b"}); h.Index != SegmentLen {
		t.Errorf("%v, where slot 7 cools down", h)
	}
	w.free[classCounters].next = w.free[classCounters].end
	if err := w.Remove(hs[8]); err != nil {
		t.Fatal(err)
	}
	_, err := w.Add(Entry{Name: "c"})
	if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "2 slots cool down: the first is free in") {
		t.Error(err)
	}
	if got := r.Status().Refused; got != 1 {
		t.Errorf("%d refused", got)
	}
}

func TestUpdatesShowWholeOrNotAtAll(t *testing.T) {
	w, r := heapMirror(t, 64, 0, 0, Options{})
	h := mustAdd(t, w, Entry{Name: "a"})
	long := ""
	for range 20 {
		long += "eth…"
	}
	for i := range 3 {
		if err := w.SetSource(h, long, "l3"); err != nil {
			t.Fatal(err)
		}
		if err := w.SetFlags(h, true, i == 1, i == 2); err != nil {
			t.Fatal(err)
		}
		if err := w.SetContinuity(h, Continuity{Cookie: uint64(i)}); err != nil {
			t.Fatal(err)
		}
		e, err := r.Entry(h)
		if err != nil || !e.Valid || e.Stale != (i == 1) || e.Ambiguous != (i == 2) || e.Continuity.Cookie != uint64(i) || e.ByteBasis != "l3" {
			t.Fatalf("%+v, %v", e, err)
		}
		if len(e.Source) > 63 || e.Source[len(e.Source)-3:] != "…" {
			t.Fatalf("source %q", e.Source)
		}
	}
	if err := w.SetSource(h, "x", "a basis that is too long"); !errors.Is(err, ErrInvalid) {
		t.Fatal(err)
	}
}

func TestAddRefusesEntriesThatDoNotFit(t *testing.T) {
	w, r := heapMirror(t, 64, 1, 0, Options{CoolDown: time.Hour})
	mustAdd(t, w, Entry{Name: "a"})
	long := make([]byte, 300)
	for i := range long {
		long[i] = 'x'
	}
	for _, tt := range []struct {
		name string
		e    Entry
		want error
	}{
		{"empty name", Entry{}, ErrInvalid},
		{"long name", Entry{Name: string(long[:64])}, ErrInvalid},
		{"NUL", Entry{Name: "a\x00b"}, ErrInvalid},
		{"not UTF-8", Entry{Name: "\xff"}, ErrInvalid},
		{"ESC", Entry{Name: "a\x1b[2J"}, ErrInvalid},
		{"line feed", Entry{Name: "a\nb"}, ErrInvalid},
		{"DEL", Entry{Name: "a\x7f"}, ErrInvalid},
		{"CSI of C1", Entry{Name: "a\u009b2J"}, ErrInvalid},
		{"right to left", Entry{Name: "a\u202eb"}, ErrInvalid},
		{"isolate", Entry{Name: "a\u2066b"}, ErrInvalid},
		{"invisible", Entry{Name: "a\u200bb"}, ErrInvalid},
		{"control in the kind", Entry{Name: "b", Kind: "a\x1b"}, ErrInvalid},
		{"control in the unit", Entry{Name: "b", Unit: "a\x9b"}, ErrInvalid},
		{"control in a label's key", Entry{Name: "b", Labels: map[string]string{"a\x1b": ""}}, ErrInvalid},
		{"long kind", Entry{Name: "b", Kind: string(long[:16])}, ErrInvalid},
		{"twice", Entry{Name: "a"}, ErrExists},
		{"label key", Entry{Name: "b", Labels: map[string]string{"a=b": ""}}, ErrInvalid},
		{"labels too long", Entry{Name: "b", Labels: map[string]string{"k": string(long[:254])}}, ErrInvalid},
	} {
		for _, latency := range []bool{false, true} {
			tt.e.Latency = latency
			if _, err := w.Add(tt.e); !errors.Is(err, tt.want) {
				t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
			}
		}
	}
	// Letters of every script are printable. The refused entries took no slot.
	l := mustAdd(t, w, Entry{Name: "l", Latency: true, Labels: map[string]string{"k": string(long[:252])}, Text: string(long)})
	if e, err := r.Entry(l); err != nil || len(e.Labels["k"]) != 252 || len(e.Text) != 287 || e.Text != string(long[:287-18])+TextSum(string(long)) {
		t.Fatal(e, err)
	}
	if _, err := w.Add(Entry{Name: "m", Latency: true}); !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	if got := r.Status().Refused; got != 1 {
		t.Fatalf("%d refused", got)
	}
}

func TestClosedWriterRefusesEveryCall(t *testing.T) {
	w, r := heapMirror(t, 64, 1, 4, Options{})
	h := mustAdd(t, w, Entry{Name: "a"})
	c := mustCounter(t, r, h)
	w.BeginCycle()
	w.PublishBlock(0, &Block{{1, 2, 3}})
	w.EndCycle(Now())
	for range 2 {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.BeginCycle(); n != 0 {
		t.Fatalf("cycle %d of a closed writer", n)
	}
	w.PublishBlock(0, &Block{{9, 9, 9}})
	w.AppendHistory(h, Value{})
	w.EndCycle(Now())
	w.Heartbeat(Now())
	if _, err := w.Add(Entry{Name: "b"}); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Lookup("a"); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if v, err := c.Load(); err != nil || v != (Value{1, 2, 3}) {
		t.Fatal(v, err)
	}
	if s := r.Status(); s.State != Halt || s.Alive {
		t.Fatalf("%+v", s)
	}
}

func TestPublishOutsideCyclePanics(t *testing.T) {
	w, _ := heapMirror(t, 64, 1, 4, Options{})
	for name, fn := range map[string]func(){
		"PublishBlock":  func() { w.PublishBlock(0, new(Block)) },
		"PublishRecord": func() { w.PublishRecord(4096, Value{}) },
		"AppendHistory": func() { w.AppendHistory(Handle{}, Value{}) },
		"EndCycle":      func() { w.EndCycle(0) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s did not panic", name)
				}
			}()
			fn()
		}()
	}
}

// The ring must have at least two records: with one a reader on arm64 could get ahead of the tail (Cursor.next).
func TestHistoryIsAPowerOfTwo(t *testing.T) {
	for want, asked := range map[uint32][]int{0: {0}, 2: {1, 2}, 4: {3, 4}, 8: {5, 8}, maxHistory: {maxHistory - 1, maxHistory}} {
		for _, n := range asked {
			if got, err := ringRecords(n); got != want || err != nil {
				t.Errorf("asked for %d records: %d, %v; want %d", n, got, err, want)
			}
		}
	}
}
