package shm

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// Find is Entries of some names.
func TestFindReturnsTheEntriesOfItsNames(t *testing.T) {
	w, r := heapMirror(t, 256, 8, 0, Options{})
	for i := range 200 {
		if _, err := w.Add(Entry{Name: fmt.Sprint("c", i), Kind: "flow", Latency: i%50 == 0, Labels: map[string]string{"n": fmt.Sprint(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := r.Entries()
	if err != nil {
		t.Fatal(err)
	}
	gone := all[slices.IndexFunc(all, func(e Entry) bool { return e.Name == "c7" })]
	if err := w.Remove(gone.Handle); err != nil {
		t.Fatal(err)
	}
	for _, names := range [][]string{{"c1"}, {"c150", "c3", "c150"}, {"c7"}, {"absent", "c199", "c1\x00"}, {""}, {}} {
		got, err := r.Find(names...)
		if err != nil {
			t.Fatal(err)
		}
		want := slices.DeleteFunc(slices.Clone(all), func(e Entry) bool { return e.Name == "c7" || !slices.Contains(names, e.Name) })
		if !slices.EqualFunc(got, want, func(a, b Entry) bool {
			return a.Name == b.Name && a.Handle == b.Handle && a.Labels["n"] == b.Labels["n"]
		}) {
			t.Errorf("%q: found %+v, want %+v", names, got, want)
		}
	}
	r.Close()
	if _, err := r.Find("c1"); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
