package shm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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

// A cycle without sleepers changes the word, and allocates nothing.
func TestCycleWithoutASleeperAllocatesNothing(t *testing.T) {
	w, _, h := waitMirror(t, Options{})
	word := *w.waker.page.Load().word
	if n := testing.AllocsPerRun(100, func() { w.waker.due = 0; publishOne(w, h, patterned(2)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if *w.waker.page.Load().word != word+101 {
		t.Errorf("the word went from %d to %d", word, *w.waker.page.Load().word)
	}
}

// A poller without pause wakes once per wakeEvery, and the timer wakes for the last cycle.
func TestBusyCyclesWakeNowAndThen(t *testing.T) {
	const cycles, apart = 10000, int64(time.Microsecond)
	w, r, h := waitMirror(t, Options{})
	wakes := 0
	w.waker.hook = func(string) { wakes++ }
	w.waker.late.Stop()
	w.waker.owing.Store(true) // no timer: these are counted
	now := Now()
	w.waker.due = now + wakeEvery
	if n := testing.AllocsPerRun(cycles-1, func() {
		now += apart
		w.BeginCycle()
		w.EndCycle(now)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if want := int(cycles * apart / wakeEvery); wakes != want {
		t.Errorf("%d cycles %v apart woke %d times, want %d", cycles, time.Duration(apart), wakes, want)
	}
	w.waker.hook = nil
	w.waker.owing.Store(false)
	done := fallAsleep(t, sound(t, r), h, 2)
	asleep(t, os.Getpid(), 1)
	w.waker.due = Now() + int64(time.Hour) // as if a cycle had woken just now
	w.BeginCycle()
	w.PublishBlock(0, &Block{patterned(2)})
	w.EndCycle(Now())
	if !w.waker.owing.Load() {
		t.Log("the timer was quicker")
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// One cycle wakes all sleepers, even if they are far more than wakeAtOnce.
func TestOneCycleWakesAll(t *testing.T) {
	const sleepers = 20*wakeAtOnce + 3
	w, r, h := waitMirror(t, Options{})
	var done []chan error
	for range sleepers {
		done = append(done, fallAsleep(t, sound(t, r), h, 2))
	}
	for n := range uint64(3) { // twice for nothing
		asleep(t, os.Getpid(), sleepers)
		turn := *w.waker.page.Load().turn
		w.waker.due = 0
		publishOne(w, h, patterned(n))
		until(t, "the pass ended", func() bool { return w.waker.asked.Load() == 0 })
		if *w.waker.page.Load().turn == turn {
			t.Error("no pass was made")
		}
	}
	for _, d := range done {
		if err := <-d; err != nil {
			t.Error(err)
		}
	}
}

// A waiter killed in its sleep leaves nothing behind.
func TestKilledWaiterLeavesNothing(t *testing.T) {
	w, _, h := waitMirror(t, Options{})
	cmd := child("wait", w.path, "FLOWTALLY_SHM_THRESHOLD=1000000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	asleep(t, cmd.Process.Pid, 1)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	w.waker.due = 0
	publishOne(w, h, patterned(3))
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
	done := fallAsleep(t, sound(t, r), h, last.Packets+1)
	asleep(t, os.Getpid(), 1)
	publishOne(w, h, patterned(last.Packets+1))
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A process that may not read the page learns so from Wakeable, and its waits look once per cycle.
func TestProcessOutsideTheGroupLooksOncePerCycle(t *testing.T) {
	need.Root(t)
	const group, user = 54321, 54322
	w, _, h := waitMirror(t, Options{WaitGroup: group})
	if err := os.Chmod(filepath.Dir(w.path), 0o755); err != nil { // made by MkdirTemp
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(waitPath(w.path), &st); err != nil || st.Mode != unix.S_IFREG|0o640 || st.Gid != group || st.Uid != 0 {
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
				s.hook = func(step string) { // the value comes when it is about to sleep
					if step == "wait-asleep" && !published {
						published = true
						publishOne(w, h, patterned(last.Packets+1))
					}
				}
				if v, err := s.await(t.Context(), h, r.reaches(h, last.Packets+1)); err != nil || slept != (tt.want == nil) {
					t.Errorf("%v, %v; slept on the page: %t", v, err, slept)
				}
			}()
			<-done
		})
	}
	// A writer goes on with the page of its group. One with another group, or with none, makes
	// another page: a process that has this one open is not woken any more.
	for _, tt := range []struct {
		group   int
		mode    uint32
		another bool
	}{{group, 0o640, false}, {group + 1, 0o640, true}, {group + 1, 0o640, false}, {0, 0o600, true}} {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		w = mustCreate(t, Options{Path: w.path, HeartbeatPeriod: patience, WaitGroup: tt.group})
		inode := st.Ino
		if err := unix.Stat(waitPath(w.path), &st); err != nil || (st.Ino != inode) != tt.another || st.Mode != unix.S_IFREG|tt.mode ||
			tt.group != 0 && int(st.Gid) != tt.group {
			t.Errorf("group %d: %+v, %v", tt.group, st, err)
		}
	}
}

// If the page cannot be given to the wanted group, Create fails and leaves the mirror as it was.
func TestUnusableWaitGroupLeavesTheMirrorAsItWas(t *testing.T) {
	need.Root(t)
	path := mirrorPath(t)
	if err := os.Chown(filepath.Dir(path), 54322, -1); err != nil {
		t.Fatal(err)
	}
	if os.Getenv(emulator) != "" {
		t.Skip("the emulator is not this binary")
	}
	cmd := child("page-group", path) // by a path that another user may follow
	cmd.Path, cmd.SysProcAttr = "/proc/self/exe", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54322, Gid: 54322}}
	out, err := cmd.Output()
	if err != nil || strings.TrimSpace(string(out)) != "permission true" {
		t.Errorf("%s, %v", out, err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// If another user's file has the page's name, no waiter maps it, and the next writer replaces it without
// writing to it.
func TestPageOfAnotherUserIsNeitherMappedNorWritten(t *testing.T) {
	need.Root(t) // to give files away
	w, r, h := waitMirror(t, Options{})
	path := waitPath(w.path)
	other := path + ".other"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		place func() error
	}{
		{"missing", func() error { return nil }},
		{"a link", func() error { return os.Symlink(other, path) }},
		{"another's by a second name", func() error { return errors.Join(os.Chown(other, 54322, -1), os.Link(other, path)) }},
		{"another's", func() error { return errors.Join(os.WriteFile(path, page, 0o600), os.Chown(path, 54322, -1)) }},
		{"a directory", func() error { return os.Mkdir(path, 0o755) }},
		{"a fifo", func() error { return unix.Mkfifo(path, 0o666) }},
		{"short", func() error { return os.WriteFile(path, page[:pageSize-1], 0o600) }},
		{"no page", func() error { return os.WriteFile(path, make([]byte, pageSize), 0o600) }},
		{"of another version", func() error {
			return os.WriteFile(path, append(append([]byte(pageMagic), 2), page[wpVersion+1:]...), 0o600)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := errors.Join(os.RemoveAll(path), os.RemoveAll(other), os.WriteFile(other, page, 0o600), tt.place()); err != nil {
				t.Fatal(err)
			}
			err := r.Wakeable()
			if err == nil {
				t.Error("wakeable")
			}
			t.Log(err)
			if p := new(readerPage).current(r.path, w.Generation()); p != nil {
				t.Error("mapped")
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			w = mustCreate(t, Options{Path: w.path, HeartbeatPeriod: patience})
			if got, err := os.ReadFile(other); err != nil || string(got) != string(page) {
				t.Errorf("the writer changed another file: %v", err)
			}
			if err := r.Wakeable(); err != nil {
				t.Errorf("the next writer did not make it anew: %v", err)
			}
			wakesOne(t, w, r, h)
		})
	}
}

// Somebody removes, replaces or cuts the page beside a living writer. No process faults, waiters
// look once per cycle, and Intact makes the page anew, and sleepers on the old page find it.
func TestPageIsMadeAnew(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"removed": os.Remove,
		"replaced": func(path string) error {
			return errors.Join(os.Remove(path), os.WriteFile(path, make([]byte, pageSize), 0o600))
		},
		"cut short": func(path string) error { return os.Truncate(path, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			if name == "cut short" {
				needFaultAddress(t)
			}
			w, r, h := waitMirror(t, Options{})
			s := newSleeper(r)
			done := fallAsleep(t, s, h, 4)
			if err := spoil(waitPath(w.path)); err != nil {
				t.Fatal(err)
			}
			if err := r.Wakeable(); err == nil {
				t.Error("wakeable")
			}
			w.waker.due = 0
			publishOne(w, h, patterned(2))
			before := w.waker.page.Load()
			w.waker.due = 0
			publishOne(w, h, patterned(3))
			if err := w.Intact(); err != nil {
				t.Error(err)
			}
			if w.waker.page.Load() == before {
				t.Fatal("not made anew")
			}
			if err := r.Wakeable(); err != nil {
				t.Error(err)
			}
			until(t, "the waiter has the new page", func() bool {
				p := s.page.Load()
				return p != nil && pageOf(p) == w.Generation()
			})
			w.waker.due = 0
			publishOne(w, h, patterned(4))
			if err := <-done; err != nil {
				t.Error(err)
			}
			wakesOne(t, w, r, h)
		})
	}
}

// pageOf is the generation that a page says; 0: none.
func pageOf(p *waitPage) uint64 {
	s, err := p.load()
	if err != nil {
		return 0
	}
	return s.generation
}

func init() {
	children["wait"] = func() {
		r, err := OpenReader(os.Getenv("FLOWTALLY_SHM_PATH"), ReaderOptions{})
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
	children["page-group"] = func() {
		_, err := Create(Options{Path: os.Getenv("FLOWTALLY_SHM_PATH"), WaitGroup: 1})
		fmt.Println("permission", errors.Is(err, ErrPermission))
	}
}
