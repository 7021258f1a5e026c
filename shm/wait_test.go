package shm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Each case is something that happens while Wait sleeps, and the result that Wait must return.
func TestWaitEndsWithTheReasonOfItsEnd(t *testing.T) {
	long := Options{HeartbeatPeriod: time.Hour, CoolDown: -1}
	for _, tt := range []struct {
		name      string
		kind      string
		first     Value // before the wait; zero: never sampled
		threshold uint64
		then      func(t *testing.T, w *Writer, h Handle)
		want      Value
		err       error
	}{
		{name: "reached already", first: patterned(5), threshold: 5, want: patterned(5)},
		{name: "passed already", first: patterned(5), threshold: 3, want: patterned(5)},
		{name: "reached", first: patterned(5), threshold: 6, then: publish(patterned(6)), want: patterned(6)},
		{name: "passed", first: patterned(5), threshold: 6, then: publish(patterned(9)), want: patterned(9)},
		{name: "nothing is not 0", threshold: 0, then: publish(Value{SampledAt: 1}), want: Value{SampledAt: 1}},
		{name: "bytes of a flow move", first: patterned(5), threshold: 6,
			then: publish(Value{5, 501, 2000}, patterned(6)), want: patterned(6)},
		{name: "an error", kind: KindCompletion, first: Value{5, 0, 1}, threshold: 6, then: publish(Value{5, 1, 2}), want: Value{5, 1, 2}, err: ErrCompletion},
		{name: "errors before", kind: KindCompletion, first: Value{5, 3, 1}, threshold: 6, then: publish(Value{6, 3, 2}), want: Value{6, 3, 2}},
		{name: "an error on the way", kind: KindCompletion, first: Value{5, 3, 1}, threshold: 7, then: publish(Value{6, 3, 2}, Value{6, 4, 2}),
			want: Value{6, 4, 2}, err: ErrCompletion},
		{name: "reached with an error", kind: KindCompletion, first: Value{5, 0, 1}, threshold: 6, then: publish(Value{6, 1, 2}), want: Value{6, 1, 2}},
		{name: "errors set back", kind: KindCompletion, first: Value{5, 3, 1}, threshold: 6, then: publish(Value{5, 0, 2}), want: Value{5, 0, 2}, err: ErrCompletion},
		{name: "removed", first: patterned(5), threshold: 6, err: ErrGone, then: func(t *testing.T, w *Writer, h Handle) {
			if err := w.Remove(h); err != nil {
				t.Error(err)
			}
		}},
		{name: "removed, and the slot serves another", first: patterned(5), threshold: 6, err: ErrGone, then: func(t *testing.T, w *Writer, h Handle) {
			if err := w.Remove(h); err != nil {
				t.Error(err)
			}
			again, err := w.Add(Entry{Name: "other"})
			if err != nil || again.Index != h.Index {
				t.Error(again, err)
			}
			publishOne(w, again, patterned(9))
		}},
		{name: "writer ends", first: patterned(5), threshold: 6, want: patterned(5), err: ErrNotAlive, then: func(t *testing.T, w *Writer, h Handle) {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}},
		{name: "writer ends having reached it", first: patterned(5), threshold: 6, want: patterned(6), then: func(t *testing.T, w *Writer, h Handle) {
			publishOne(w, h, patterned(6))
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}},
		{name: "writer gives up", first: patterned(5), threshold: 6, want: patterned(5), err: ErrNotAlive,
			then: func(t *testing.T, w *Writer, h Handle) { w.SetState(Fail) }},
		{name: "writer falls silent", first: patterned(5), threshold: 6, want: patterned(5), err: ErrNotAlive,
			then: func(t *testing.T, w *Writer, h Handle) { w.Heartbeat(Now() - 3*int64(time.Hour)) }},
		{name: "replaced", first: patterned(5), threshold: 6, err: ErrStale, then: func(t *testing.T, w *Writer, h Handle) {
			if err := w.GiveUp(5); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, r := heapMirror(t, BlockLen, 0, 0, long)
			w.coolDown = 0
			h := mustAdd(t, w, Entry{Name: "a", Kind: tt.kind})
			if tt.first != (Value{}) {
				publishOne(w, h, tt.first)
			}
			s := newSleeper(r)
			asleep, told := make(chan struct{}), false
			s.hook = func(step string) {
				if step == "wait-asleep" && !told {
					told = true
					close(asleep)
				}
			}
			type answer struct {
				v   Value
				err error
			}
			done := make(chan answer, 1)
			go func() {
				v, err := s.await(t.Context(), h, r.reaches(h, tt.threshold))
				done <- answer{v, err}
			}()
			if tt.then != nil {
				select {
				case <-asleep:
				case got := <-done:
					t.Fatalf("did not sleep: %v, %v", got.v, got.err)
				}
				tt.then(t, w, h)
			}
			got := <-done
			if got.v != tt.want || !errors.Is(got.err, tt.err) {
				t.Errorf("%v, %v; want %v, %v", got.v, got.err, tt.want, tt.err)
			}
			if errors.Is(tt.err, ErrStale) && !errors.Is(got.err, ErrNotAlive) {
				t.Errorf("%v does not say that nobody lives", got.err)
			}
		})
	}
}

// publish publishes values one after the other, each once a waiter has had the
// time to see the one before.
func publish(values ...Value) func(*testing.T, *Writer, Handle) {
	return func(t *testing.T, w *Writer, h Handle) {
		for _, v := range values {
			publishOne(w, h, v)
			time.Sleep(2 * time.Millisecond)
		}
	}
}

// publishOne makes a cycle in which h shows v.
func publishOne(w *Writer, h Handle, v Value) {
	w.BeginCycle()
	if w.v.slot(h.Index).latency() {
		w.PublishRecord(h.Index, v)
	} else {
		var b Block
		b[h.Index%BlockLen] = v
		w.PublishBlock(int(h.Index/BlockLen), &b)
	}
	w.EndCycle(Now())
}

func TestWaitChangeEndsOnlyAtOtherNumbers(t *testing.T) {
	for _, tt := range []struct {
		name         string
		since, shown Value
		change       bool
	}{
		{"the same", patterned(5), patterned(5), false},
		{"sampled again", patterned(5), Value{5, 500, 9999}, false},
		{"packets", patterned(5), Value{6, 500, 1}, true},
		{"fewer packets", patterned(5), Value{4, 500, 1}, true},
		{"bytes", patterned(5), Value{5, 501, 1}, true},
		{"never sampled, and is not", Value{}, Value{}, false},
		{"sampled first, as 0", Value{}, Value{SampledAt: 1}, true},
		{"sampled no more", Value{SampledAt: 1}, Value{}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, r := heapMirror(t, BlockLen, 0, 0, Options{HeartbeatPeriod: time.Hour})
			h := mustAdd(t, w, Entry{Name: "a"})
			publishOne(w, h, tt.shown)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
			defer cancel()
			v, err := r.WaitChange(ctx, h, tt.since)
			if want := map[bool]error{true: nil, false: context.DeadlineExceeded}[tt.change]; err != want || v != tt.shown {
				t.Errorf("%v, %v; want %v", v, err, want)
			}
		})
	}
}

// A damaged header may have generation 0, as has a page that nobody wakes on. No reader may sleep on such a page.
func TestWaitSleepsOnNoPageOfGenerationZero(t *testing.T) {
	w, r := heapMirror(t, BlockLen, 0, 0, Options{})
	h := mustAdd(t, w, Entry{Name: "a"})
	generation := w.v.hdr.generation
	w.v.hdr.generation = 0
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
	defer cancel()
	if _, err := r.Wait(ctx, h, 1); err != context.DeadlineExceeded {
		t.Error(err)
	}
	w.v.hdr.generation = generation
}

// Wait returns at once for a closed reader, and for a handle without a counter.
func TestWaitRefusesAClosedReaderAndAnUnknownHandle(t *testing.T) {
	w, r := heapMirror(t, BlockLen, 0, 0, Options{})
	h := mustAdd(t, w, Entry{Name: "a"})
	for _, none := range []Handle{{h.Index, h.Generation + 1}, {h.Index + 1, 1}, {1 << 30, 1}} {
		if _, err := r.Wait(t.Context(), none, 0); !errors.Is(err, ErrGone) {
			t.Errorf("%v: %v", none, err)
		}
	}
	if err := r.Wakeable(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("nobody wakes who waits on memory: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(t.Context(), h, 0); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	// A wait that began before ends as well.
	w, r = heapMirror(t, BlockLen, 0, 0, Options{})
	h = mustAdd(t, w, Entry{Name: "a"})
	s, told := newSleeper(r), false
	s.hook = func(step string) {
		if step == "wait-asleep" && !told {
			told = true
			_ = r.Close()
		}
	}
	if _, err := s.await(t.Context(), h, r.reaches(h, 0)); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := r.Wakeable(); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// A waiter whom nobody wakes learns the length of a cycle, within bounds.
func TestPaceLearnsTheCycleWithinBounds(t *testing.T) {
	const ms = int64(time.Millisecond)
	type seen struct {
		cycle    uint64
		at, told int64
	}
	for _, tt := range []struct {
		name   string
		period int64
		seen   []seen
		want   int64
	}{
		{"nothing known", 500 * ms, []seen{{0, 0, 0}}, 500 * ms / 16},
		{"one cycle", 500 * ms, []seen{{7, 700 * ms, 0}}, 500 * ms / 16},
		{"two", 500 * ms, []seen{{7, 700 * ms, 0}, {8, 710 * ms, 0}}, 10 * ms},
		{"several between two looks", 500 * ms, []seen{{7, 700 * ms, 0}, {12, 710 * ms, 0}}, 2 * ms},
		{"no new one", 500 * ms, []seen{{7, 700 * ms, 0}, {8, 710 * ms, 0}, {8, 710 * ms, 0}}, 10 * ms},
		{"quick", 500 * ms, []seen{{7, 700 * ms, 0}, {1007, 710 * ms, 0}}, ms},
		{"slower than its heartbeat", 500 * ms, []seen{{7, 700 * ms, 0}, {8, 5700 * ms, 0}}, 500 * ms},
		{"clock goes back", 500 * ms, []seen{{7, 700 * ms, 0}, {8, 600 * ms, 0}}, 500 * ms / 16},
		{"nonsense", 500 * ms, []seen{{1, 1, 0}, {1 << 63, 1 << 62, 0}}, 500 * ms},
		{"told", 500 * ms, []seen{{7, 700 * ms, 100 * ms}, {8, 710 * ms, 100 * ms}}, 100 * ms},
		{"told another", 500 * ms, []seen{{7, 700 * ms, 100 * ms}, {8, 710 * ms, 10 * ms}}, 10 * ms},
		{"told longer than its heartbeat", 500 * ms, []seen{{7, 700 * ms, 3600_000 * ms}}, 500 * ms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var p pace
			var got int64
			for _, s := range tt.seen {
				got = p.next(1e12, &look{period: tt.period, told: s.told, cycle: s.cycle, cycleAt: s.at}) - 1e12
			}
			if got != tt.want {
				t.Errorf("%v, want %v", time.Duration(got), time.Duration(tt.want))
			}
		})
	}
}

// The table of the specification must have exactly the words of the page of waiters, at the
// same offsets.
func TestPageLayoutIsThatOfTheSpecification(t *testing.T) {
	text, err := os.ReadFile("../docs/mirror-format.md")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \| ([a-z0-9\[\]]+) \| page\.([a-z_]+) \|`).FindAllStringSubmatch(string(text), -1) {
		got[m[3]] = m[1] + " " + m[2]
	}
	want := map[string]string{
		"magic":      fmt.Sprintf("%d char[%d]", wpMagic, len(pageMagic)),
		"version":    fmt.Sprint(wpVersion, " u32"),
		"byte_order": fmt.Sprint(wpByteOrder, " u32"),
		"generation": fmt.Sprint(wpGeneration, " u64"),
		"word":       fmt.Sprint(wpWord, " u32"),
		"turn":       fmt.Sprint(wpTurn, " u32"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("code -, document +:\n%s", diff)
	}
	if !strings.Contains(string(text), "4,096 bytes") || pageSize != 4096 {
		t.Errorf("the document does not say %d bytes", pageSize)
	}
}
