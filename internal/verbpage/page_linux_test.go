package verbpage

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// open returns the writer's and the reader's side of one page.
func open(t testing.TB) (writer, reader *Page) {
	t.Helper()
	reader, f, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if writer, err = Open(f); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { writer.Close(); reader.Close() })
	return writer, reader
}

func TestLastReturnsTheNewestUnfinishedCall(t *testing.T) {
	w, r := open(t)
	want := func(device, verb string, ok bool) {
		t.Helper()
		if d, v, is := r.Last(); d != device || v != verb || is != ok {
			t.Errorf("last call %q %q %v, want %q %q %v", d, v, is, device, verb, ok)
		}
	}
	want("", "", false)
	a := w.Begin("mlx5_0", "ibv_create_flow")
	b := w.Begin("mlx5_1", "ibv_read_counters")
	want("mlx5_1", "ibv_read_counters", true)
	w.End(b)
	want("mlx5_0", "ibv_create_flow", true)
	c := w.Begin("", "ibv_get_device_list") // a shorter name leaves nothing of the longer one
	want("", "ibv_get_device_list", true)
	w.End(a)
	w.End(c)
	want("", "", false)
	long := w.Begin(strings.Repeat("d", 200), strings.Repeat("v", 200)+"\x1b")
	want(strings.Repeat("d", verbAt-deviceAt), strings.Repeat("v", lineSize-verbAt), true)
	w.End(long)
	w.End(w.Begin("\x1b[31m\xff", "v"))
	w.Begin("\x1b[31m\xff", "v")
	want("?[31m?", "v", true)
}

func TestOldestStaysUntilItsCallReturns(t *testing.T) {
	w, r := open(t)
	want := func(number uint64) {
		t.Helper()
		if n := r.Oldest(); n != number {
			t.Errorf("oldest call %d, want %d", n, number)
		}
	}
	want(0)
	a := w.Begin("mlx5_0", "ibv_create_flow")
	b := w.Begin("mlx5_0", "ibv_read_counters")
	want(1)
	w.End(b)
	w.End(w.Begin("mlx5_0", "ibv_read_counters"))
	want(1)
	c := w.Begin("mlx5_0", "ibv_create_qp")
	w.End(a)
	want(4)
	w.End(c)
	want(0)
}

// The named calls must stay named. A nil page names none.
func TestCallsBeyondTheLinesAreNotNamed(t *testing.T) {
	w, r := open(t)
	var begun []int
	for i := range 2 * lines {
		begun = append(begun, w.Begin("swnic0", fmt.Sprint(i)))
	}
	if _, v, ok := r.Last(); v != fmt.Sprint(lines-1) || !ok {
		t.Errorf("last call %q, want %d", v, lines-1)
	}
	for _, line := range begun {
		w.End(line)
	}
	if _, _, ok := r.Last(); ok {
		t.Error("a call is named that has returned")
	}
	var none *Page
	none.End(none.Begin("swnic0", "ibv_open_device"))
	if _, _, ok := none.Last(); ok || none.Close() != nil {
		t.Error("a nil page names a call")
	}
}

// No call is left on the page afterwards.
func TestConcurrentCallsAllocateNothing(t *testing.T) {
	w, r := open(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 10000 {
				w.End(w.Begin("swnic0", "ibv_read_counters"))
			}
		})
	}
	all.Wait()
	if d, v, ok := r.Last(); ok {
		t.Errorf("%s %s is under way, and has returned", d, v)
	}
	if n := testing.AllocsPerRun(100, func() { w.End(w.Begin("swnic0", "ibv_read_counters")) }); n != 0 {
		t.Errorf("naming a call allocates %v times", n)
	}
}

// A process with the page's file could otherwise make the other process fault.
func TestPageFileCannotBeTruncated(t *testing.T) {
	_, f, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(0); err == nil {
		t.Error("the page was cut")
	}
	short, err := os.Create(filepath.Join(t.TempDir(), "short"))
	if err != nil {
		t.Fatal(err)
	}
	defer short.Close()
	if _, err := Open(short); err == nil {
		t.Error("a file without a page was opened")
	}
}

func BenchmarkCall(b *testing.B) {
	w, _ := open(b)
	for b.Loop() {
		w.End(w.Begin("mlx5_0", "mlx5dv_devx_obj_query"))
	}
}
