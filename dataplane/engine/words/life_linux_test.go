package words_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/published"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/shm/shmtest"
	shmwords "github.com/flowtally/flowtally/shm/words"
)

// Returned words are free at once, and the total continues without a discontinuity. If a program ends without returning its
// words, they are abandoned, and can be taken after the cool-down.
func TestReturnedWordsAreFreeAndAbandonedOnesCoolDown(t *testing.T) {
	path := mirror(t)
	svc := instance(t, path, "app")
	r := shmtest.MustOpen(t, path)
	var total uint64
	for i := range uint64(5) {
		w := take(t, path, "app")
		if s := published.Words(t, svc, "app"); s != dataplane.WordsTaken {
			t.Errorf("taken: %s", s)
		}
		w.Add(i+1, 0)
		total += i + 1
		d := device(t, r, "app")
		wantWords(t, &d, total, 0)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if s := published.Words(t, svc, "app"); s != dataplane.WordsFree {
			t.Errorf("given back: %s", s)
		}
		if _, _, err := d.Load(); !errors.Is(err, shm.ErrNoDevice) {
			t.Errorf("a reader of words that were given back: %v", err)
		}
	}
	lab.Eventually(t, "the mirror has the total", func() bool { return published.Completions(t, r, "app") == total })
	alive := time.Now()
	errno, _, fd := abandon(t, path)
	if errno != 0 {
		t.Fatal(errno)
	}
	lab.Eventually(t, "abandoned", func() bool { return published.Words(t, svc, "app") == dataplane.WordsAbandoned })
	d := device(t, r, "app")
	wantWords(t, &d, total, 0)
	// The device of the dead program has not stopped yet: its last completions count.
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], 9)
	if _, err := unix.Pwrite(fd, b[:], 0); err != nil {
		t.Fatal(err)
	}
	total += 9
	wantWords(t, &d, total, 0)
	if w, err := shmwords.Take(path, "app", shmwords.Options{}); err == nil {
		w.Close()
		if time.Since(alive) < time.Second { // the cool-down
			t.Error("abandoned words were taken at once")
		}
	} else if !errors.Is(err, shmwords.ErrInUse) {
		t.Errorf("taking abandoned words at once: %v, want ErrInUse", err)
	}
	var w *shmwords.Words
	lab.Eventually(t, "the cool-down is over", func() (ok bool) {
		var err error
		w, err = shmwords.Take(path, "app", shmwords.Options{})
		return err == nil
	})
	defer w.Close()
	w.Add(1, 1)
	d = device(t, r, "app")
	wantWords(t, &d, total+1, 1)
	all, err := r.Entries()
	if err != nil || len(all) != 1 || all[0].Continuity.Discontinuities != 1 {
		t.Errorf("%+v: %v, want one discontinuity", all, err)
	}
}

// Reserve refuses existing names and too many words. After Release readers get ErrGone.
func TestReserveRefusesTakenNamesAndTooManyWords(t *testing.T) {
	path := mirror(t)
	svc := instance(t, path, "app")
	ctx := t.Context()
	for name, want := range map[string]error{"app": dataplane.ErrExists, "": dataplane.ErrInvalid, "a b": dataplane.ErrInvalid} {
		if _, err := svc.ReserveWords(ctx, name); !errors.Is(err, want) {
			t.Errorf("reserving %q: %v, want %v", name, err, want)
		}
	}
	n := 1
	for ; ; n++ {
		_, err := svc.ReserveWords(ctx, fmt.Sprint("w", n))
		if errors.Is(err, dataplane.ErrFull) {
			break
		}
		if err != nil || n > 1000 {
			t.Fatal(err)
		}
	}
	if list, err := svc.ReservedWords(ctx); err != nil || len(list) != n {
		t.Errorf("%d words are listed, want %d (%v)", len(list), n, err)
	}
	r := shmtest.MustOpen(t, path)
	w := take(t, path, "w1")
	w.Add(1, 0)
	d := device(t, r, "w1")
	if err := svc.ReleaseWords(ctx, "w1"); err != nil {
		t.Fatal(err)
	}
	if err := svc.ReleaseWords(ctx, "w1"); !errors.Is(err, dataplane.ErrNotFound) {
		t.Errorf("releasing twice: %v", err)
	}
	if _, _, err := d.Load(); !errors.Is(err, shm.ErrGone) && !errors.Is(err, shm.ErrNoDevice) {
		t.Errorf("the words of a released counter: %v", err)
	}
	lab.Eventually(t, "the program learns of the release", func() bool { return !w.Served() })
	if _, err := svc.ReserveWords(ctx, "w1"); err != nil {
		t.Errorf("reserving again: %v", err)
	}
	if err := svc.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	if _, err := svc.ReserveWords(ctx, "x"); !errors.Is(err, dataplane.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestReservedWordsAreNoDifferenceForApply: apply must not take words that calls have reserved or released for a
// difference from the file.
func TestReservedWordsAreNoDifferenceForApply(t *testing.T) {
	cfg := dataplane.Config{
		Instance: "words", Words: []string{"file", "gone"}, Backend: flow.Sim,
		Mirror: dataplane.MirrorConfig{Path: mirror(t), History: -1}, Poll: dataplane.PollConfig{Period: time.Millisecond},
	}
	svc, err := engine.New(t.Context(), cfg, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = svc.Close() })
	if _, err := svc.ReserveWords(t.Context(), "call"); err != nil {
		t.Fatal(err)
	}
	if err := svc.ReleaseWords(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		words []string
		err   error
	}{
		{words: []string{"file", "gone"}},         // the file, as it was
		{words: []string{"call", "file", "gone"}}, // also as the client of a plugin sends it
		{words: []string{"file", "gone"}},
		{words: []string{"file", "gone", "new"}, err: dataplane.ErrRestart},
		{words: []string{"gone"}, err: dataplane.ErrRestart},
	} {
		to := cfg
		to.Words, to.Poll.Period = c.words, cfg.Poll.Period+time.Millisecond
		cfg.Poll.Period = to.Poll.Period
		d, err := svc.SetFlows(t.Context(), nil, dataplane.SetOptions{Config: &to})
		if !errors.Is(err, c.err) || err == nil && len(d.Settings) != 1 {
			t.Errorf("words %q: %v, %v; want the period, or %v", c.words, d.Settings, err, c.err)
		}
	}
	list, err := svc.ReservedWords(t.Context())
	if err != nil || len(list) != 2 {
		t.Errorf("%v, %v; want call and file", list, err)
	}
}
