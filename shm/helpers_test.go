package shm

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// heapStore is a mirror's bytes on the heap, which the race detector sees.
type heapStore struct{ b []byte }

func (s heapStore) window(off, n uint64) (*mapping, error) {
	if off+n > uint64(len(s.b)) {
		return nil, fmt.Errorf("%d of %d bytes are there: %w", len(s.b), off+n, ErrTruncated)
	}
	return &mapping{b: s.b[off : off+n : off+n]}, nil
}

func (heapStore) reserve(off, n uint64) error { return nil }

func (heapStore) nextWritten(off uint64) uint64 { return off }

func (heapStore) Close() error { return nil }

// newHeap is a formatted region with room for that many segments, none of which is
// declared. It is not ready.
func newHeap(t testing.TB, segments, history int) (heapStore, *view) {
	t.Helper()
	n, err := ringRecords(history)
	if err != nil {
		t.Fatal(err)
	}
	s := heapStore{make([]byte, segmentOffset(n, uint32(segments)))} // large: the allocator aligns it to pages
	fixed, err := format(s.b, n, 77, time.Now().UnixNano())
	if err != nil {
		t.Fatal(err)
	}
	v, err := newView(s, &mapping{b: s.b[:headerSize]}, fixed)
	if err != nil {
		t.Fatal(err)
	}
	return s, v
}

// heapMirror is a writer and a reader over heap memory, with room for that many
// counters of both classes and no more. Every test ends with a check of the region.
func heapMirror(t testing.TB, counters, records, history int, o Options) (*Writer, *Reader) {
	t.Helper()
	s, v := newHeap(t, segmentsFor(counters)+segmentsFor(records), history)
	o.Path, o.Counters, o.LatencyCounters = "heap", limitFor(counters), limitFor(records)
	w, err := newWriter(o.withDefaults(), v, nil)
	if err != nil {
		t.Fatal(err)
	}
	v.ready()
	t.Cleanup(func() { noProblems(t, checkBytes(s.b)) })
	return w, mustAttach(t, s)
}

func segmentsFor(n int) int { return (n + SegmentLen - 1) / SegmentLen }

// limitFor is the limit that allows n counters.
func limitFor(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

func mustAttach(t testing.TB, s store) *Reader {
	t.Helper()
	v, err := attach(s)
	if err != nil {
		t.Fatal(err)
	}
	return &Reader{path: "heap", v: v}
}

// heap returns the memory of a writer over the heap.
func (w *Writer) heap() []byte { return w.v.store.(heapStore).b }

// checkBytes checks a region.
func checkBytes(b []byte) []Problem {
	v, err := attach(heapStore{b})
	if err != nil {
		return []Problem{{Object: "header", Text: err.Error()}}
	}
	return v.check()
}

// slot is the place of index i, which is there.
func (v *view) slot(i uint32) place {
	p, err := v.place(i)
	if err != nil {
		panic(err)
	}
	return p
}

// growBy makes the writer add a segment for a class of counters, though the ones that
// are there have free slots: those are left out until the next writer takes over.
func growBy(w *Writer, class int) error {
	w.mu.Lock()
	w.free[class].next = w.free[class].end
	w.mu.Unlock()
	return w.grow(class, math.MaxInt)
}

func mustGrow(t testing.TB, w *Writer, class int) {
	t.Helper()
	if err := growBy(w, class); err != nil {
		t.Fatal(err)
	}
}

// publishAll publishes one cycle in which each of the counters has the value that
// value returns, and calls also at its end.
func publishAll(w *Writer, hs []Handle, value func(h Handle) Value, also ...func()) {
	blocks := make(map[int]*Block)
	w.BeginCycle()
	for _, h := range hs {
		if w.v.slot(h.Index).latency() {
			w.PublishRecord(h.Index, value(h))
			continue
		}
		b := blocks[int(h.Index/BlockLen)]
		if b == nil {
			b = new(Block)
			blocks[int(h.Index/BlockLen)] = b
		}
		b[h.Index%BlockLen] = value(h)
	}
	for _, n := range slices.Sorted(maps.Keys(blocks)) {
		w.PublishBlock(n, blocks[n])
	}
	for _, fn := range also {
		fn()
	}
	w.EndCycle(Now())
}

// sameParity holds the blocks in use of each segment to one parity.
func sameParity(t testing.TB, w *Writer) {
	t.Helper()
	for n, s := range *w.v.list.Load() {
		if s.kind == kindRecords {
			continue
		}
		want, _ := w.parity(n)
		for b := range segmentBlocks {
			if w.live[n*segmentBlocks+b] != 0 && *blockOf(s, b).seq()&1 != want {
				t.Errorf("block %d of segment %d has another parity than the others", b, n)
			}
		}
	}
}

func noProblems(t testing.TB, ps []Problem) {
	t.Helper()
	for i, p := range ps {
		t.Errorf("broken invariant: %v", p)
		if i == 10 {
			t.Fatalf("and %d more", len(ps)-i-1)
		}
	}
}

// mirrorPath returns a path on a tmpfs where there is one, in a directory of its own.
func mirrorPath(t testing.TB) string {
	t.Helper()
	root := "/dev/shm"
	if st, err := os.Stat(root); err != nil || !st.IsDir() {
		root = ""
	}
	dir, err := os.MkdirTemp(root, "flowtally-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "m.mirror")
}

func mustCreate(t testing.TB, o Options) *Writer {
	t.Helper()
	w, err := Create(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		checkFile(t, o.Path)
	})
	return w
}

func checkFile(t testing.TB, path string) {
	t.Helper()
	ps, err := Check(path)
	if err != nil {
		t.Error(err)
	}
	noProblems(t, ps)
}

func mustOpen(t testing.TB, path string) *Reader {
	t.Helper()
	r, err := OpenReader(path, ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func mustAdd(t testing.TB, w *Writer, e Entry) Handle {
	t.Helper()
	h, err := w.Add(e)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func addN(t testing.TB, w *Writer, n int, latency bool) []Handle {
	t.Helper()
	hs := make([]Handle, n)
	for i := range hs {
		hs[i] = mustAdd(t, w, Entry{Name: fmt.Sprintf("c%v-%d", latency, i), Kind: "flow", Latency: latency})
	}
	return hs
}

func mustCounter(t testing.TB, r *Reader, h Handle) HandleCounter {
	t.Helper()
	c, err := r.Counter(h)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// patterned makes every value of a test recognisable: a triple
// that was torn, or is of another counter, fails whole.
const packetSize = 100

func patterned(n uint64) Value {
	return Value{Packets: n, Bytes: n * packetSize, SampledAt: int64(n) + 1000}
}

func isPatterned(v Value) bool { return v == (Value{}) || v == patterned(v.Packets) }
