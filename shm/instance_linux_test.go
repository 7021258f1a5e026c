package shm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// followed is an Instance that follows a path, and a writer that publishes one counter there.
type followed struct {
	t    *testing.T
	path string
	in   *Instance
}

func follower(t *testing.T, o Options) (*followed, *Writer, *Counter) {
	t.Helper()
	f := &followed{t: t, path: mirrorPath(t)}
	w := f.writer(o)
	f.publish(w, 1)
	in, err := OpenPath(f.path, ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	f.in = in
	c, err := in.Counter("web")
	if err != nil {
		t.Fatal(err)
	}
	f.reads(c, 1)
	return f, w, c
}

func (f *followed) writer(o Options) *Writer {
	f.t.Helper()
	o.Path, o.History, o.CoolDown = f.path, -1, -1
	w, err := Create(o)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { w.Close() })
	return w
}

// publish publishes n as the packets of the counter web, which it adds when it is not there.
func (f *followed) publish(w *Writer, n uint64) {
	f.t.Helper()
	if _, err := w.Add(Entry{Name: "web"}); err != nil && !errors.Is(err, ErrExists) {
		f.t.Fatal(err)
	}
	w.SetState(Run)
	w.BeginCycle()
	w.PublishBlock(0, &Block{{Packets: n, SampledAt: 1}})
	w.EndCycle(Now())
}

func (f *followed) reads(c *Counter, want uint64) {
	f.t.Helper()
	if v, err := c.Load(); err != nil || v.Packets != want {
		f.t.Fatalf("%+v, %v, want %d packets", v, err, want)
	}
}

// eventually loads until the value is there. Another value, but an old one, and an error, but
// ErrStale, end the test.
func (f *followed) eventually(c *Counter, old, want uint64) (stale bool) {
	f.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		v, err := c.Load()
		switch {
		case err == nil && v.Packets == want:
			return stale
		case errors.Is(err, ErrStale):
			stale = true
		case err != nil || v.Packets != old:
			f.t.Fatalf("%+v, %v", v, err)
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("%+v, %v after 30 s, want %d packets", v, err, want)
		}
	}
}

// A Counter follows a restart, growth, and another counter that gets the name.
func TestInstanceFollowsRestartsAndGrowth(t *testing.T) {
	f, w, c := follower(t, Options{})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f.reads(c, 1) // the last value of a writer that ended
	w = f.writer(Options{})
	f.publish(w, 2)
	f.reads(c, 2)
	mustGrow(t, w, 0)
	f.publish(w, 3)
	f.reads(c, 3)
	h, err := f.in.Reader().Lookup("web")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Remove(h); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Load(); !errors.Is(err, ErrNotFound) {
		t.Errorf("a name that no counter has: %v", err)
	}
	if h = mustAdd(t, w, Entry{Name: "web", Latency: true}); h.Index < SegmentLen {
		t.Fatal(h)
	}
	w.BeginCycle()
	w.PublishRecord(h.Index, Value{Packets: 4, SampledAt: 1})
	w.EndCycle(Now())
	f.reads(c, 4)
	if n := testing.AllocsPerRun(100, func() { f.reads(c, 4) }); n != 0 {
		t.Errorf("a load allocates %v times", n)
	}
}

// After its writer gives a file up, reads return ErrStale at once, and the next file is read as soon as it exists.
func TestInstanceFollowsAMarkedFile(t *testing.T) {
	f, w, c := follower(t, Options{})
	for round := range uint64(10) {
		if err := os.Remove(f.path); err != nil {
			t.Fatal(err)
		}
		if err := w.GiveUp(0); err != nil {
			t.Fatal(err)
		}
		if v, err := c.Load(); !errors.Is(err, ErrStale) {
			t.Fatalf("%+v, %v of a file that was given up", v, err)
		}
		w = f.writer(Options{})
		f.publish(w, round+2)
		f.eventually(c, 0, round+2)
	}
}

// A file removed while no writer lived has no mark. A Counter must read the next file of that name
// within two heartbeat periods.
func TestInstanceFollowsAnUnmarkedFile(t *testing.T) {
	const period = 5 * time.Second // the watcher looks once a second; the rest is for a loaded machine
	f, w, c := follower(t, Options{HeartbeatPeriod: period})
	var longest time.Duration
	for round := range uint64(10) {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(f.path); err != nil {
			t.Fatal(err)
		}
		w = f.writer(Options{HeartbeatPeriod: period})
		f.publish(w, round+2)
		start := time.Now()
		f.eventually(c, round+1, round+2)
		longest = max(longest, time.Since(start))
	}
	t.Logf("the longest of 10 took %v", longest)
	if longest > 2*period {
		t.Errorf("it took %v, two heartbeat periods are %v", longest, 2*period)
	}
}

// A Wait by name continues in the next file of that name.
func TestInstanceWaitContinuesInTheNextFile(t *testing.T) {
	f, w, c := follower(t, Options{})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	type result struct {
		v   Value
		err error
	}
	done := make(chan result, 1)
	go func() {
		for {
			v, err := c.Wait(ctx, 100)
			if errors.Is(err, ErrStale) || errors.Is(err, ErrNotFound) {
				time.Sleep(time.Millisecond) // no file has the name at this instant
				continue
			}
			done <- result{v, err}
			return
		}
	}()
	if err := os.Remove(f.path); err != nil {
		t.Fatal(err)
	}
	if err := w.GiveUp(0); err != nil {
		t.Fatal(err)
	}
	w = f.writer(Options{})
	f.publish(w, 99)
	f.publish(w, 100)
	if r := <-done; r.err != nil || r.v.Packets != 100 {
		t.Errorf("%+v", r)
	}
}

// Close ends the watch on the name. Counters can still be read.
func TestInstanceCloseEndsTheWatchAndNoCounter(t *testing.T) {
	f, w, c := follower(t, Options{})
	for range 2 {
		if err := f.in.Close(); err != nil {
			t.Fatal(err)
		}
	}
	f.publish(w, 2)
	f.reads(c, 2)
	if _, err := f.in.Counter("web"); !errors.Is(err, ErrClosed) {
		t.Errorf("a counter of a closed instance: %v", err)
	}
	if _, err := OpenPath(f.path+"x", ReaderOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// Open finds the mirror of an instance where Locate does, and Counter finds a counter by its name.
func TestInstanceOpensTheMirrorThatLocateFinds(t *testing.T) {
	f := &followed{t: t, path: mirrorPath(t)}
	user := filepath.Dir(f.path)
	name := filepath.Base(user) // in no other place that Locate looks at
	f.path = filepath.Join(user, "flowtally", name+".mirror")
	t.Setenv("XDG_RUNTIME_DIR", user)
	// Errors name the object, the cause and the next step.
	_, err := Open(name)
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "instance "+name) || !strings.Contains(err.Error(), "start its writer") {
		t.Fatalf("no writer has made it: %v", err)
	}
	if _, err := Open(f.path); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "OpenPath") {
		t.Fatalf("a path in place of a name: %v", err)
	}
	w := f.writer(Options{})
	f.publish(w, 1)
	in, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if got := in.Reader().Path(); got != f.path {
		t.Errorf("opened %s, want %s", got, f.path)
	}
	_, err = in.Counter("nosuch")
	if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), f.path+`: looking up "nosuch"`) || !strings.Contains(err.Error(), "flowtally get") {
		t.Errorf("a name that no counter has: %v", err)
	}
	c, err := in.Counter("web")
	if err != nil || c.Name() != "web" {
		t.Fatal(c, err)
	}
	f.reads(c, 1)
	f.publish(w, 2)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if v, err := c.WaitChange(ctx, Value{Packets: 1, SampledAt: 1}); err != nil || v.Packets != 2 {
		t.Errorf("%+v, %v", v, err)
	}
}

// A Wait by name sleeps on an unmarked file whose writer was killed a moment ago. It must move to the
// next file of that name.
func TestInstanceWaitLeavesAnUnmarkedFile(t *testing.T) {
	long := Options{HeartbeatPeriod: 10 * time.Minute}
	f, w, c := follower(t, long)
	for _, name := range []string{f.path, w.lock.Name()} { // its lock ended with it
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	v, err := c.wait(ctx, func(r *Reader, h Handle) (Value, error) {
		if w != nil { // of the old file
			w = nil
			f.publish(f.writer(long), 100)
		}
		return r.Wait(ctx, h, 100)
	})
	if err != nil || v.Packets != 100 {
		t.Errorf("%+v, %v", v, err)
	}
}

// If somebody overwrites the file under a Wait by name, it continues in the file that the writer makes anew.
func TestInstanceWaitContinuesAfterItsFileIsOverwritten(t *testing.T) {
	f, w, c := follower(t, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	calls := 0
	remade := make(chan error, 1)
	v, err := c.wait(ctx, func(r *Reader, h Handle) (Value, error) {
		if calls++; calls > 1 { // in the new file
			return r.Wait(ctx, h, 100)
		}
		st, err := os.Stat(f.path)
		if err == nil {
			err = writeOver(f.path, make([]byte, st.Size()))
		}
		if err != nil {
			t.Error(err)
		}
		dead := r.dead(Now()) // as a Wait that slept meanwhile
		from := Now()
		go func() {
			for looked := int64(0); looked < from; time.Sleep(time.Millisecond) { // in vain, for another file
				f.in.mu.Lock()
				looked = f.in.openedAt
				f.in.mu.Unlock()
			}
			err := w.Remake([]Entry{{Name: "web", Handle: h}})
			publishOne(w, h, Value{Packets: 100, SampledAt: 1})
			remade <- err
		}()
		return Value{}, dead
	})
	if err := <-remade; err != nil {
		t.Error(err)
	}
	if err != nil || v.Packets != 100 || calls < 2 {
		t.Errorf("%+v, %v after %d calls", v, err, calls)
	}
	// It ends when none is made.
	if err := writeOver(f.path, make([]byte, headerSize)); err != nil {
		t.Fatal(err)
	}
	if v, err := c.Wait(ctx, 101); err == nil || ctx.Err() != nil {
		t.Errorf("%+v, %v", v, err)
	}
}

// In a mirror made anew a counter has no value at first. WaitChange must not take that for a change.
func TestInstanceWaitChangeTakesNoValueForNoChange(t *testing.T) {
	f, w, c := follower(t, Options{})
	before, err := c.Load()
	if err != nil {
		t.Fatal(err)
	}
	h, err := f.in.Reader().Lookup("web")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Remake([]Entry{{Name: "web", Handle: h}}); err != nil {
		t.Fatal(err)
	}
	f.reads(c, 0) // of the new file
	ended, cancel := context.WithCancel(t.Context())
	cancel() // one look, no sleep
	if v, err := c.WaitChange(ended, before); !errors.Is(err, context.Canceled) {
		t.Errorf("no value: %+v, %v", v, err)
	}
	f.publish(w, before.Packets)
	if v, err := c.WaitChange(ended, before); !errors.Is(err, context.Canceled) {
		t.Errorf("the same numbers: %+v, %v", v, err)
	}
	f.publish(w, 2)
	if v, err := c.WaitChange(ended, before); err != nil || v.Packets != 2 {
		t.Errorf("%+v, %v", v, err)
	}
}

// writeOver writes b to the file at path, from its start.
func writeOver(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	return errors.Join(err, f.Close())
}
