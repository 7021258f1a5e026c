package words_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/shm/shmtest"
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

func take(t *testing.T, path, name string) *shmwords.Words {
	t.Helper()
	w, err := shmwords.Take(path, name, shmwords.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// device returns the words of a counter as a reader has them.
func device(t *testing.T, r *shm.Reader, name string) shm.Device {
	t.Helper()
	d, err := r.Device(shmtest.MustLookup(t, r, name))
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
