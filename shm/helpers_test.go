package shm

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// heapMirror is a writer and a reader over heap memory, which the race
// detector sees. Every test ends with a check of the region.
func heapMirror(t testing.TB, counters, records, history int, o Options) (*Writer, *Reader) {
	t.Helper()
	g, err := plan(counters, records, history)
	if err != nil {
		t.Fatal(err)
	}
	_, length := g.sections()
	m := &mapping{b: make([]byte, length)} // large: the allocator aligns it to pages
	v, err := format(m.b, g, time.Now().UnixNano())
	if err != nil {
		t.Fatal(err)
	}
	o.Path = "heap"
	w, err := newWriter(o.withDefaults(), m, v, nil)
	if err != nil {
		t.Fatal(err)
	}
	v.ready()
	r, err := newReader("heap", m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { noProblems(t, checkBytes(m.b)) })
	return w, r
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

// mirrorPath answers a path on a tmpfs where there is one, in a directory of its own.
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
	r, err := Open(path, ReaderOptions{})
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

func mustCounter(t testing.TB, r *Reader, h Handle) Counter {
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
