// Package published reads the mirror and the reserved words of an instance for tests. A failure ends the test.
package published

import (
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/shm"
)

// Open returns a reader of the mirror at path. The end of the test closes it.
func Open(t testing.TB, path string) *shm.Reader {
	t.Helper()
	r, err := shm.Open(path, shm.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// Lookup returns the handle of a counter.
func Lookup(t testing.TB, r *shm.Reader, name string) shm.Handle {
	t.Helper()
	h, err := r.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Completions returns the value of a counter as the poller has published it.
func Completions(t testing.TB, r *shm.Reader, name string) uint64 {
	t.Helper()
	c, err := r.Counter(Lookup(t, r, name))
	if err != nil {
		t.Fatal(err)
	}
	v, err := c.Load()
	if err != nil {
		t.Fatal(err)
	}
	return v.Completions()
}

// Words returns the state of reserved words, or "" for a name without words.
func Words(t testing.TB, svc dataplane.Service, name string) dataplane.WordsState {
	t.Helper()
	list, err := svc.ReservedWords(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range list {
		if w.Name == name {
			return w.State
		}
	}
	return ""
}
