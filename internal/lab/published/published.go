// Package published reads the mirror and the reserved words of an instance for tests. A failure ends the test.
package published

import (
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/shm/shmtest"
)

// Completions returns the value of a counter as the poller has published it.
func Completions(t testing.TB, r *shm.Reader, name string) uint64 {
	t.Helper()
	c, err := r.Counter(shmtest.MustLookup(t, r, name))
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
