// Package shmtest makes mirrors for tests, on a tmpfs if there is one, and checks their invariants when the test ends.
package shmtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/flowtally/flowtally/shm"
)

// Path returns a path for a mirror in a directory of its own, which is removed when the test ends.
func Path(t testing.TB) string {
	t.Helper()
	root := "/dev/shm"
	if st, err := os.Stat(root); err != nil || !st.IsDir() {
		root = ""
	}
	dir, err := os.MkdirTemp(root, "flowtally-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "test.mirror")
}

// MustCreate creates or takes over a mirror, at a Path of its own if o has none. When the test ends it closes the writer and
// checks the file.
func MustCreate(t testing.TB, o shm.Options) *shm.Writer {
	t.Helper()
	if o.Path == "" {
		o.Path = Path(t)
	}
	w, err := shm.Create(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		MustCheck(t, o.Path)
	})
	return w
}

// MustOpen opens a mirror for reading until the test ends.
func MustOpen(t testing.TB, path string) *shm.Reader {
	t.Helper()
	r, err := shm.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// MustLookup returns the handle of the counter of that name.
func MustLookup(t testing.TB, r *shm.Reader, name string) shm.Handle {
	t.Helper()
	h, err := r.Lookup(name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return h
}

// MustCheck reports every broken invariant of the mirror at path.
func MustCheck(t testing.TB, path string) {
	t.Helper()
	ps, err := shm.Check(path)
	if err != nil {
		t.Error(err)
	}
	for _, p := range ps {
		t.Errorf("%s: broken invariant: %v", path, p)
	}
}
