package words_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/shm"
	shmwords "github.com/flowtally/flowtally/shm/words"
)

// instance runs an instance with reserved words and nothing else.
func instance(t *testing.T, path string, names ...string) dataplane.Service {
	t.Helper()
	svc, err := engine.New(t.Context(), dataplane.Config{
		Instance: "words", Words: names, Mirror: dataplane.MirrorConfig{Path: path, Counters: 64, History: -1},
		Poll: dataplane.PollConfig{Period: time.Millisecond, IdlePeriod: time.Millisecond},
	}, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = svc.Close() })
	return svc
}

func mirror(t *testing.T) string { return filepath.Join(t.TempDir(), "m.mirror") }

// until waits for a state.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

func take(t *testing.T, path, name string) *shmwords.Words {
	t.Helper()
	w, err := shmwords.Take(path, name, shmwords.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func open(t *testing.T, path string) *shm.Reader {
	t.Helper()
	r, err := shm.Open(path, shm.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// device returns the words of a counter as a reader has them.
func device(t *testing.T, r *shm.Reader, name string) shm.Device {
	t.Helper()
	h, err := r.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	d, err := r.Device(h)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func wantWords(t *testing.T, d *shm.Device, comp, errs uint64) {
	t.Helper()
	if c, e, err := d.Load(); err != nil || c != comp || e != errs {
		t.Errorf("the words have %d and %d (%v), want %d and %d", c, e, err, comp, errs)
	}
}

// state returns the state of reserved words.
func state(t *testing.T, svc dataplane.Service, name string) dataplane.WordsState {
	t.Helper()
	list, err := svc.ReservedWords(context.Background())
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

// completions returns the ordinary value of a counter.
func completions(t *testing.T, r *shm.Reader, name string) uint64 {
	t.Helper()
	h, err := r.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	c, err := r.Counter(h)
	if err != nil {
		t.Fatal(err)
	}
	v, err := c.Load()
	if err != nil {
		t.Fatal(err)
	}
	return v.Completions()
}
