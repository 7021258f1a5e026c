package shm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// fallAsleep begins a Wait and returns once it is about to sleep; done receives the error of the Wait.
func fallAsleep(t *testing.T, s *sleeper, h Handle, threshold uint64) (done chan error) {
	t.Helper()
	r, done := s.r, make(chan error, 1)
	reached, told := make(chan struct{}), false
	s.hook = func(step string) {
		if step == "wait-asleep" && !told {
			told = true
			close(reached)
		}
	}
	go func() {
		_, err := s.await(t.Context(), h, r.reaches(h, threshold))
		done <- err
	}()
	select {
	case <-reached:
	case err := <-done:
		t.Fatalf("did not sleep: %v", err)
	}
	return done
}

// until returns when the condition holds.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// asleep returns when n threads of a process sleep on words shared between processes.
func asleep(t testing.TB, pid, n int) {
	t.Helper()
	futex := map[int]bool{202: true, 98: true} // on amd64, on arm64; an emulator makes the calls of its own machine
	until(t, fmt.Sprintf("%d threads of process %d sleep", n, pid), func() bool {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, task := range tasks {
			var number, op int
			var word uint64
			text, _ := os.ReadFile(task)
			if k, _ := fmt.Sscanf(string(text), "%d 0x%x 0x%x", &number, &word, &op); k == 3 && futex[number] && op == opWaitBitset {
				got++
			}
		}
		return got >= n
	})
}

// kill ends a writer as a kill does: nothing is written, the kernel drops the lock.
func kill(t *testing.T, w *Writer) {
	t.Helper()
	if err := w.lock.Close(); err != nil {
		t.Fatal(err)
	}
}

func killable(t *testing.T, o Options) (*Writer, *Reader, Handle) {
	t.Helper()
	w, err := Create(o)
	if err != nil {
		t.Fatal(err)
	}
	h := mustAdd(t, w, Entry{Name: "a"})
	publishOne(w, h, patterned(1))
	return w, mustOpen(t, o.Path), h
}

// Wait on a mirror whose writer was killed returns once the heartbeat is too old.
func TestWaitNoticesADeadWriter(t *testing.T) {
	for _, group := range []int{0, -1} {
		o := Options{Path: mirrorPath(t), HeartbeatPeriod: 20 * time.Millisecond, WaitGroup: group}
		w, r, h := killable(t, o)
		kill(t, w)
		_, err := r.Wait(t.Context(), h, 2)
		if silent := time.Duration(Now() - w.v.hdr.heartbeat); !errors.Is(err, ErrNotAlive) || silent < 2*o.HeartbeatPeriod {
			t.Errorf("group %d: %v after %v", group, err, silent)
		} else {
			t.Logf("group %d: after %v: %v", group, silent, err)
		}
	}
}

// A writer wakes its waiters when it ends, and when it gives up.
func TestWaitIsEndedByItsWriter(t *testing.T) {
	for name, end := range map[string]func(*Writer) error{
		"close": (*Writer).Close,
		"fail":  func(w *Writer) error { w.SetState(Fail); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			w, r, h := waitMirror(t, Options{})
			done := fallAsleep(t, sound(t, r), h, 2)
			asleep(t, os.Getpid(), 1)
			if err := end(w); err != nil {
				t.Error(err)
			}
			if err := <-done; !errors.Is(err, ErrNotAlive) {
				t.Error(err)
			}
		})
	}
}

// The next writer reuses the page, and wakes a waiter that slept through the death of the
// last writer. If the page is gone, or the next writer makes none, the waiter notices at
// its next look.
func TestWaitIsWokenByTheNextWriter(t *testing.T) {
	for _, tt := range []struct {
		name  string
		page  func(path string) error
		group int
	}{
		{"same page", func(string) error { return nil }, 0},
		{"another page", os.Remove, 0},
		{"no page", func(string) error { return nil }, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := Options{Path: mirrorPath(t), HeartbeatPeriod: patience}
			w, r, h := killable(t, o)
			var last int64 // until when a sleep lasted that no wake ended
			s := watched(r, func(until int64, result syscall.Errno) {
				if result == syscall.ETIMEDOUT {
					last = until
				}
			})
			done := fallAsleep(t, s, h, 3)
			kill(t, w)
			if err := tt.page(waitPath(o.Path)); err != nil {
				t.Fatal(err)
			}
			o.WaitGroup = tt.group
			next := mustCreate(t, o)
			publishOne(next, h, patterned(2))
			if tt.group == 0 {
				until(t, "the waiter has the page of the next writer", func() bool { p := s.page.Load(); return p != nil && pageOf(p) == next.Generation() })
				asleep(t, os.Getpid(), 1)
				next.waker.due = 0
			}
			publishOne(next, h, patterned(3))
			ended := Now()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if tt.group == 0 && last > ended {
				t.Errorf("slept until %v after the cycle had ended", time.Duration(last-ended))
			}
		})
	}
}

// Another file gets the mirror's name while a waiter sleeps on the old one: it returns ErrStale.
func TestWaitEndsStaleWhenItsFileIsReplaced(t *testing.T) {
	o := Options{Path: mirrorPath(t), HeartbeatPeriod: patience}
	next := func(t *testing.T, done chan error) {
		t.Helper()
		if w, err := Create(o); err == nil {
			t.Fatalf("took over a file that was given up or is no mirror: %v", w)
		}
		again := o
		again.Replace = true
		w := mustCreate(t, again)
		if err := <-done; !errors.Is(err, ErrStale) || !errors.Is(err, ErrNotAlive) {
			t.Error(err)
		}
		h := mustAdd(t, w, Entry{Name: "a"})
		r := mustOpen(t, o.Path)
		publishOne(w, h, patterned(2))
		if err := r.Wakeable(); err != nil {
			t.Error(err)
		}
		wakesOne(t, w, r, h)
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Run("by the next writer", func(t *testing.T) {
		w, r, h := killable(t, o)
		done := fallAsleep(t, sound(t, r), h, 1<<60)
		kill(t, w)
		f, err := os.OpenFile(o.Path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt([]byte{1}, 400); err != nil { // a reserved byte
			t.Fatal(err)
		}
		next(t, done)
	})
	t.Run("by the writer", func(t *testing.T) {
		if err := os.Remove(o.Path); err != nil {
			t.Fatal(err)
		}
		w, r, h := killable(t, o)
		publishOne(w, h, patterned(1))
		done := fallAsleep(t, sound(t, r), h, 1<<60)
		if err := w.GiveUp(0); err != nil {
			t.Fatal(err)
		}
		next(t, done)
	})
}

// The owner cuts the mirror short under a sleeper: Wait returns, and nothing faults.
func TestWaitOnACutMirrorEndsWithoutAFault(t *testing.T) {
	needFaultAddress(t)
	_, r, h := killable(t, Options{Path: mirrorPath(t), HeartbeatPeriod: patience})
	done := fallAsleep(t, newSleeper(r), h, 2)
	s := newSleeper(r)
	s.hook = func(step string) { // nothing is touched between this and the kernel's look at the word
		if step != "wait-asleep" {
			return
		}
		if err := os.Truncate(r.path, 0); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.await(t.Context(), h, r.reaches(h, 2)); !errors.Is(err, ErrTruncated) {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, ErrTruncated) {
		t.Error(err)
	}
	if err := r.Wakeable(); !errors.Is(err, ErrTruncated) {
		t.Error(err)
	}
}

// The writer wakes a waiter in another process, which has its own mapping.
func TestWaitInAnotherProcessIsWoken(t *testing.T) {
	w, _, h := waitMirror(t, Options{})
	cmd := child("wait", w.path, "FLOWTALLY_SHM_THRESHOLD=1000")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for n := uint64(2); n < 1000; n++ {
		publishOne(w, h, patterned(n))
		if n%100 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	asleep(t, cmd.Process.Pid, 1)
	publishOne(w, h, patterned(1000))
	answer, _ := io.ReadAll(out)
	if got, want := string(answer), "{1000 100000 2000} <nil>\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// elsewhere binds the directory of w's mirror to another place, as into a container, and returns the
// mirror's path there.
func elsewhere(t *testing.T, w *Writer, flags uintptr) string {
	t.Helper()
	need.Root(t)
	need.Netns(t)
	dir := t.TempDir()
	if err := unix.Mount(filepath.Dir(w.path), dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if flags != 0 {
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, filepath.Base(w.path))
}

// The writer wakes a waiter in a container: in other PID, IPC, network and mount namespaces,
// with the mirror bind-mounted under another path.
func TestWaitInAContainerIsWoken(t *testing.T) {
	if os.Getenv(emulator) != "" {
		t.Skip("the emulator does not make namespaces")
	}
	w, _, h := waitMirror(t, Options{})
	// In a PID namespace of its own it is 1, and its parent 0.
	cmd := child("wait", elsewhere(t, w, 0), "FLOWTALLY_SHM_THRESHOLD=2", "FLOWTALLY_SHM_PARENT=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	asleep(t, cmd.Process.Pid, 1)
	publishOne(w, h, patterned(2))
	answer, _ := io.ReadAll(out)
	if got, want := string(answer), "{2 200 1002} <nil>\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// A read-only mount makes no difference, because a waiter writes nothing.
func TestWaitOnAReadOnlyMountIsWoken(t *testing.T) {
	w, _, h := waitMirror(t, Options{})
	r := mustOpen(t, elsewhere(t, w, unix.MS_RDONLY))
	if err := r.Wakeable(); err != nil {
		t.Errorf("wakeable: %v", err)
	}
	done := fallAsleep(t, sound(t, r), h, 2)
	asleep(t, os.Getpid(), 1)
	publishOne(w, h, patterned(2))
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Wait works for latency counters too.
func TestWaitOnALatencyCounterIsWoken(t *testing.T) {
	w, r, _ := waitMirror(t, Options{})
	h := mustAdd(t, w, Entry{Name: "fast", Latency: true})
	missed := int64(0)
	done := fallAsleep(t, watched(r, func(until int64, result syscall.Errno) {
		if result == syscall.ETIMEDOUT {
			missed = until
		}
	}), h, 7)
	w.BeginCycle()
	w.PublishRecord(h.Index, patterned(7))
	w.EndCycle(Now())
	ended := Now()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if missed > ended {
		t.Errorf("slept on for %v", time.Duration(missed-ended))
	}
}

// If futex(2) does not work, a waiter naps and looks.
func TestWaitWithoutAFutexLooksByItself(t *testing.T) {
	w, r, h := waitMirror(t, Options{})
	s := newSleeper(r)
	s.futex = func(*uint32, uint32, int64, uint32) syscall.Errno { return syscall.ENOSYS }
	go func() {
		time.Sleep(5 * time.Millisecond)
		publishOne(w, h, patterned(2))
	}()
	if v, err := s.await(t.Context(), h, r.reaches(h, 2)); err != nil || v != patterned(2) {
		t.Error(v, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
	defer cancel()
	if _, err := s.await(ctx, h, r.reaches(h, 3)); err != context.DeadlineExceeded {
		t.Error(err)
	}
}

// A waiter sleeps on while the mirror grows, and is woken by the first cycle after it.
func TestWaitOverGrowthIsWoken(t *testing.T) {
	w := mustCreate(t, Options{Path: mirrorPath(t), HeartbeatPeriod: patience})
	h := mustAdd(t, w, Entry{Name: "a"})
	publishOne(w, h, patterned(1))
	r := mustOpen(t, w.Path())
	done := fallAsleep(t, sound(t, r), h, 2)
	for class := range 2 {
		mustGrow(t, w, class)
	}
	publishOne(w, h, patterned(2))
	if err := <-done; err != nil {
		t.Error(err)
	}
	wakesOne(t, w, r, h)
}
