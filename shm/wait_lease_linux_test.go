package shm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab/need"
)

func writeLease(t testing.TB, w *Writer, at int64) {
	t.Helper()
	f, err := os.OpenFile(waitPath(w.path), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(at)), waitLease); err != nil {
		t.Fatal(err)
	}
}

// A lease is good until its time and for a second at most, whatever it says.
func TestLeaseIsClamped(t *testing.T) {
	const now = int64(1e12)
	for _, tt := range []struct {
		name string
		says []int64 // one after the other, all at now
		want int64   // ahead until then; 0: not
	}{
		{"none", nil, 0},
		{"in the past", []int64{now - 1}, 0},
		{"now", []int64{now}, 0},
		{"half a second", []int64{now + 5e8}, now + 5e8},
		{"lies", []int64{math.MaxInt64}, now + leaseLength},
		{"lies below zero", []int64{math.MinInt64}, 0},
		{"set back", []int64{now + 5e8, now - 5e8}, now + 5e8},
		{"set back to zero", []int64{now + 5e8, 0}, now + 5e8},
		{"raised again", []int64{now + 5e8, now + 7e8}, now + 7e8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, _, _ := waitMirror(t, Options{})
			if w.lease.ahead(now) {
				t.Error("ahead before anybody waited")
			}
			for _, at := range tt.says {
				writeLease(t, w, at)
				w.lease.ahead(now)
			}
			until := max(tt.want, now)
			if tt.want != 0 && !w.lease.ahead(until-1) {
				t.Errorf("not ahead before its end")
			}
			if w.lease.ahead(until) {
				t.Errorf("ahead at its end, until %v", time.Duration(w.lease.until-now))
			}
		})
	}
}

// A cycle that nobody waits for changes the word, and allocates nothing.
func TestNobodyWaits(t *testing.T) {
	w, r, h := waitMirror(t, Options{})
	word := r.v.hdr.waitWord
	if n := testing.AllocsPerRun(100, func() { publishOne(w, h, patterned(2)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if r.v.hdr.waitWord != word+101 {
		t.Errorf("the word went from %d to %d", word, r.v.hdr.waitWord)
	}
	if w.lease.until != 0 {
		t.Error("somebody was woken")
	}
}

// A waiter that is killed in its sleep leaves a lease that runs out, and nothing else.
func TestKilledWaiterLeavesNothing(t *testing.T) {
	w, _, h := waitMirror(t, Options{})
	cmd := child("wait", w.path, "FLOWTALLY_SHM_THRESHOLD=1000000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for !w.lease.ahead(Now()) { // until the child has raised it
		time.Sleep(time.Millisecond)
		publishOne(w, h, patterned(2))
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	publishOne(w, h, patterned(3))
	end := w.lease.until
	if left := end - Now(); left > leaseLength {
		t.Errorf("a lease of %v is left", time.Duration(left))
	}
	if w.lease.ahead(end) {
		t.Error("ahead after its end")
	}
	list, err := os.ReadDir(filepath.Dir(w.path))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range list {
		names = append(names, d.Name())
	}
	if got := strings.Join(names, " "); got != "m.lock m.mirror m.wait" {
		t.Errorf("left: %s", got)
	}
}

// wakesOne makes sure that a waiter is asleep, and that one cycle wakes it.
func wakesOne(t *testing.T, w *Writer, r *Reader, h Handle) {
	t.Helper()
	last, err := w.Last(h)
	if err != nil {
		t.Fatal(err)
	}
	threshold := last.Packets + 1
	var missed, published int64
	done := make(chan error, 1)
	s := watched(r, func(until int64, result syscall.Errno) {
		if result == syscall.ETIMEDOUT {
			missed = until
		}
	})
	go func() {
		_, err := s.await(t.Context(), h, r.reaches(h, threshold))
		done <- err
	}()
	for !w.lease.lost && !w.lease.ahead(Now()) {
		time.Sleep(100 * time.Microsecond)
	}
	time.Sleep(5 * time.Millisecond) // most probably it sleeps by now
	publishOne(w, h, patterned(threshold))
	published = Now()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if missed > published {
		t.Errorf("slept on for %v", time.Duration(missed-published))
	}
}

// Who may not write to the page is told, and looks once per cycle.
func TestLeaseIsForItsGroup(t *testing.T) {
	need.Root(t)
	const group, user = 54321, 54322
	w, _, h := waitMirror(t, Options{WaitGroup: group})
	if err := os.Chmod(filepath.Dir(w.path), 0o755); err != nil { // made by MkdirTemp
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(waitPath(w.path), &st); err != nil || st.Mode != unix.S_IFREG|0o660 || st.Gid != group || st.Uid != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	for _, tt := range []struct {
		name string
		gid  int
		want error
	}{{"member", group, nil}, {"stranger", user, fs.ErrPermission}} {
		t.Run(tt.name, func(t *testing.T) {
			r := mustOpen(t, w.path)
			done := make(chan struct{})
			go func() {
				defer close(done)
				runtime.LockOSThread() // and never unlocked: the thread ends with its identity
				if err := errors.Join(unix.Setfsgid(tt.gid), unix.Setfsuid(user)); err != nil {
					t.Error(err)
					return
				}
				if err := r.Wakeable(); !errors.Is(err, tt.want) {
					t.Errorf("wakeable: %v, want %v", err, tt.want)
				}
				last, _ := w.Last(h)
				slept, published := false, false
				s := watched(r, func(int64, syscall.Errno) { slept = true })
				s.hook = func(step string) { // what it waits for comes when it is about to sleep
					if step == "wait-raised" && !published {
						published = true
						publishOne(w, h, patterned(last.Packets+1))
					}
				}
				if v, err := s.await(t.Context(), h, r.reaches(h, last.Packets+1)); err != nil || !slept {
					t.Error(v, err, slept)
				}
				if (s.leaseOf != 0 && s.raisedAt != 0) != (tt.want == nil) {
					t.Errorf("raised: %+v", s)
				}
			}()
			<-done
		})
	}
	// The next writer takes the group back, from the same file.
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, Options{Path: w.path, HeartbeatPeriod: patience})
	inode := st.Ino
	if err := unix.Stat(waitPath(w.path), &st); err != nil || st.Ino != inode || int(st.Gid) != os.Getegid() {
		t.Errorf("%+v, %v", st, err)
	}
}

// A group that was asked for and cannot be given is an error, and the mirror as it was.
func TestLeaseOfAnotherGroup(t *testing.T) {
	need.Root(t)
	path := mirrorPath(t)
	if err := os.Chown(filepath.Dir(path), 54322, -1); err != nil {
		t.Fatal(err)
	}
	if os.Getenv(emulator) != "" {
		t.Skip("the emulator is not this binary")
	}
	cmd := child("lease-group", path) // by a path that another user may follow
	cmd.Path, cmd.SysProcAttr = "/proc/self/exe", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54322, Gid: 54322}}
	out, err := cmd.Output()
	if err != nil || strings.TrimSpace(string(out)) != "permission true" {
		t.Errorf("%s, %v", out, err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// What stands in the page's place is not written to.
func TestLeaseOfSomebodyElse(t *testing.T) {
	w, r, _ := waitMirror(t, Options{})
	path := waitPath(w.path)
	other := path + ".other"
	for _, tt := range []struct {
		name  string
		place func() error
	}{
		{"missing", func() error { return nil }},
		{"a link", func() error { return os.Symlink(other, path) }},
		{"a second name", func() error { return os.Link(other, path) }},
		{"a directory", func() error { return os.Mkdir(path, 0o755) }},
		{"a fifo", func() error { return unix.Mkfifo(path, 0o666) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := errors.Join(os.RemoveAll(path), os.WriteFile(other, []byte("precious"), 0o666), tt.place()); err != nil {
				t.Fatal(err)
			}
			err := r.Wakeable()
			if err == nil {
				t.Error("wakeable")
			}
			t.Log(err)
			if got, err := os.ReadFile(other); err != nil || string(got) != "precious" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w = mustCreate(t, Options{Path: w.path, HeartbeatPeriod: patience})
	w.BeginCycle()
	w.EndCycle(Now())
	if err := r.Wakeable(); err != nil {
		t.Errorf("the next writer did not make it anew: %v", err)
	}
}

func init() {
	children["wait"] = func() {
		r, err := Open(os.Getenv("FLOWTALLY_SHM_PATH"), ReaderOptions{})
		if err != nil {
			panic(err)
		}
		h, err := r.Lookup("a")
		if err != nil {
			panic(err)
		}
		var threshold uint64
		_, _ = fmt.Sscan(os.Getenv("FLOWTALLY_SHM_THRESHOLD"), &threshold)
		fmt.Println(r.Wait(context.Background(), h, threshold))
	}
	children["lease-group"] = func() {
		_, err := Create(Options{Path: os.Getenv("FLOWTALLY_SHM_PATH"), WaitGroup: 1})
		fmt.Println("permission", errors.Is(err, ErrPermission))
	}
}
