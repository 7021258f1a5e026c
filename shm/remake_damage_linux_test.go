package shm

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// webMirror returns the path of a mirror, its writer, and the entry of its one counter, which was published once.
func webMirror(t *testing.T) (path string, w *Writer, web Entry) {
	t.Helper()
	path = mirrorPath(t)
	w = mustCreate(t, Options{Path: path, History: -1, CoolDown: -1})
	web = Entry{Name: "web"}
	web.Handle = mustAdd(t, w, web)
	publishOne(w, web.Handle, patterned(1))
	return path, w, web
}

// Somebody cuts the mirror short while it grows, before or after the segment's space is reserved. No
// control call may crash, and the mirror made anew must have all the slots.
func TestMirrorCutShortWhileItGrowsIsRemade(t *testing.T) {
	needFaultAddress(t)
	for _, step := range []string{"grow-begin", "grow-reserved", "grow-mapped", "grow-described"} {
		for _, length := range []int64{0, headerSize} {
			path, w, e := webMirror(t)
			w.hook = func(at string) {
				if at == step {
					if err := os.Truncate(path, length); err != nil {
						t.Error(err)
					}
				}
			}
			fast := Entry{Name: "fast", Latency: true}
			if _, err := w.Add(fast); err != nil && !errors.Is(err, ErrTruncated) {
				t.Errorf("%s: %v", step, err)
			}
			w.hook = nil
			if err := w.Intact(); err == nil {
				t.Errorf("%s, cut to %d bytes: nothing is noticed", step, length)
			}
			if err := w.Remake([]Entry{e}); err != nil {
				t.Fatal(err)
			}
			fast.Handle = mustAdd(t, w, fast)
			publishAll(w, []Handle{e.Handle, fast.Handle}, func(h Handle) Value { return patterned(uint64(h.Index)) })
			checkFile(t, path)
			if err := w.Intact(); err != nil {
				t.Error(err)
			}
		}
	}
}

// If another process appends bytes to the file, they must not become part of the next segment.
func TestGrowthDropsWhatWasAppended(t *testing.T) {
	path, w, _ := webMirror(t)
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	garbage := make([]byte, segmentSize)
	for i := range garbage {
		garbage[i] = 0xa5
	}
	if _, err := f.WriteAt(garbage, st.Size()); err != nil {
		t.Fatal(err)
	}
	if h := mustAdd(t, w, Entry{Name: "fast", Latency: true}); h.Generation != 1 {
		t.Errorf("%+v, want generation 1", h)
	}
	checkFile(t, path)
}

// The handle of a removed counter must never name another counter, not even after Remake and the
// next takeover.
func TestRemakeGivesNoHandleTwice(t *testing.T) {
	path := mirrorPath(t)
	o := Options{Path: path, History: -1, CoolDown: -1}
	w := mustCreate(t, o)
	used := make(map[Handle]string)
	add := func(name string, latency bool) Handle {
		h := mustAdd(t, w, Entry{Name: name, Latency: latency})
		if was, ok := used[h]; ok {
			t.Errorf("%s has the handle %+v, which %s had", name, h, was)
		}
		used[h] = name
		return h
	}
	web := add("web", false)
	for _, latency := range []bool{false, true} {
		for range 3 {
			if err := w.Remove(add("gone", latency)); err != nil {
				t.Fatal(err)
			}
		}
	}
	add("forgotten", false)
	for round := range 3 {
		if err := w.Remake([]Entry{{Name: "web", Handle: web}}); err != nil {
			t.Fatal(err)
		}
		if round == 1 {
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			w = mustCreate(t, o)
		}
		for _, name := range []string{"a", "b", "c", "d"} {
			add(name, false)
			add(name+" fast", true)
		}
		checkFile(t, path)
	}
}

// Intact must notice a hole in the catalogue, and a fault even if the file has its length again.
func TestHolesAreNoticed(t *testing.T) {
	path, w, e := webMirror(t)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, headerSize, segmentSize); err != nil {
		t.Fatal(err)
	}
	if err := w.Intact(); !errors.Is(err, ErrFormat) {
		t.Errorf("a hole: %v", err)
	}
	if err := w.Remake([]Entry{e}); err != nil {
		t.Fatal(err)
	}
	w.BeginCycle()
	w.AbandonCycle()
	if err := w.Intact(); !errors.Is(err, ErrTruncated) {
		t.Errorf("a cycle that faulted: %v", err)
	}
	if err := w.Remake([]Entry{e}); err != nil {
		t.Fatal(err)
	}
	if err := w.Intact(); err != nil {
		t.Error(err)
	}
}

// Intact must find any one overwritten entry of two segments within 64 heartbeat periods, and within twice as many calls
// if they follow one another at once.
func TestIntactFindsAnyOverwrittenEntry(t *testing.T) {
	for _, test := range []struct {
		period time.Duration
		calls  int
	}{{time.Nanosecond, BlockLen}, {time.Hour, 2 * BlockLen}} {
		w := mustCreate(t, Options{Path: mirrorPath(t), HeartbeatPeriod: test.period, History: -1})
		handles := addN(t, w, 2*SegmentLen, false)
		for _, k := range []int{0, 17, SegmentLen - 1, SegmentLen, 2*SegmentLen - 1} {
			p, err := w.v.place(handles[k].Index)
			if err != nil {
				t.Fatal(err)
			}
			was := atomic.SwapUint64(&p.entry().identity, 0)

			err = nil
			for range test.calls {
				if err = w.Intact(); err != nil {
					break
				}
			}
			if !errors.Is(err, ErrFormat) {
				t.Errorf("counter %d, a period of %v: %v after %d calls", k, test.period, err, test.calls)
			}
			atomic.StoreUint64(&p.entry().identity, was)
		}
	}
}

// Even if somebody overwrote the header with its high-water marks, every reader of the old file gets ErrStale.
func TestRemakeMarksAFileWithAnOverwrittenHeader(t *testing.T) {
	path, w, e := webMirror(t)
	c, err := mustOpen(t, path).Counter(e.Handle)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeOver(path, make([]byte, headerSize)); err != nil {
		t.Fatal(err)
	}
	if err := w.Remake([]Entry{e}); err != nil {
		t.Fatal(err)
	}
	if v, err := c.Load(); !errors.Is(err, ErrStale) {
		t.Errorf("%+v, %v", v, err)
	}
}

// If the lock's file was removed, Intact takes the lock again, and a second writer gets ErrInUse.
func TestIntactTakesTheLockAgain(t *testing.T) {
	path, w, _ := webMirror(t)
	if err := os.Remove(lockPath(path)); err != nil {
		t.Fatal(err)
	}
	if err := w.Intact(); err != nil {
		t.Fatal(err)
	}
	if other, err := Create(Options{Path: path, History: -1}); !errors.Is(err, ErrInUse) {
		t.Errorf("a second writer: %v, %v", other, err)
	}
}

// If the file is cut short under a Wait by name, it continues in the file made anew.
func TestWaitByNameContinuesAfterItsFileIsCut(t *testing.T) {
	needFaultAddress(t)
	path, w, e := webMirror(t)
	in, err := OpenPath(path, ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for n := uint64(2); n < 8; n++ {
		c, err := in.Counter("web")
		if err != nil {
			t.Fatal(err)
		}
		if n%2 == 0 { // the counter is looked up before, or in Wait
			if err := os.Truncate(path, 0); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		done := make(chan error, 1)
		go func() {
			v, err := c.Wait(ctx, patterned(n).Packets)
			if err == nil && v != patterned(n) {
				err = fs.ErrInvalid
			}
			done <- err
		}()
		if n%2 == 1 {
			if err := os.Truncate(path, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Remake([]Entry{e}); err != nil {
			t.Fatal(err)
		}
		publishOne(w, e.Handle, patterned(n))
		if err := <-done; err != nil {
			t.Errorf("%d: %v", n, err)
		}
		cancel()
	}
}

// If the device segment is cut short, no method of its slots may crash, inside a cycle or outside.
func TestCutDeviceSegmentFaultsNoCall(t *testing.T) {
	needFaultAddress(t)
	path := mirrorPath(t)
	w, err := Create(Options{Path: path, History: -1}) // not checked at the end: its device segment is no more
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	h := mustAdd(t, w, Entry{Name: "qp"})
	d, err := w.DeviceSegment(4)
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.Slot()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.SetDevice(h, s, 0, 0, 1<<48); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(devicePath(path), 0); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Rebase(); !errors.Is(err, ErrTruncated) {
		t.Errorf("Rebase: %v", err)
	}
	if _, err := d.Slot(); !errors.Is(err, ErrTruncated) {
		t.Errorf("Slot: %v", err)
	}
	s.Free()
	publishOne(w, h, patterned(1))
	if err := w.Intact(); err != nil {
		t.Error(err)
	}
}

// A page of waiters that somebody overwrote is made anew.
func TestKeepMakesAnOverwrittenPageAnew(t *testing.T) {
	path, w, _ := webMirror(t)
	r := mustOpen(t, path)
	if err := os.WriteFile(waitPath(path), make([]byte, pageSize), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.Intact(); err != nil {
		t.Error(err)
	}
	if err := r.Wakeable(); err != nil {
		t.Error(err)
	}
}

// After Remake the writer must not keep any mapping of the old file, so that the file system gets its
// space back.
func TestRemakeFreesTheOldFile(t *testing.T) {
	path, w, e := webMirror(t)
	for range 3 {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := w.Remake([]Entry{e}); err != nil {
			t.Fatal(err)
		}
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(maps), path+" (deleted)") {
			t.Error("the old file is still mapped")
		}
	}
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := w.Remake([]Entry{e}); err == nil {
		t.Error("a mirror in the place of a directory")
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(maps), filepath.Join(filepath.Dir(path), tempPrefix(path))) {
		t.Error("a draft that got no name is still mapped")
	}
	if err := errors.Join(os.Remove(path), w.Remake([]Entry{e})); err != nil {
		t.Fatal(err)
	}
}

// At every step of Remake the file with the mirror's name must be whole. If the writer is killed there,
// even before the next cycle, the next writer must find the counters. If it is closed there, no draft may
// be left.
func TestRemakeIsWholeAtEveryStep(t *testing.T) {
	path := mirrorPath(t)
	o := Options{Path: path, History: -1, CoolDown: -1}
	entries := []Entry{{Name: "web"}, {Name: "fast", Latency: true}}
	seen := make(map[string]bool)
	for n := int64(0); ; n++ {
		w := mustCreate(t, o)
		for i := range entries {
			if entries[i].Handle == (Handle{}) {
				entries[i].Handle = mustAdd(t, w, entries[i])
			}
		}
		var steps atomic.Int64 // Close has steps too
		closed := make(chan error, 1)
		w.hook = func(step string) {
			if steps.Add(1) != n+1 {
				return
			}
			seen[step] = true
			was, err := os.ReadFile(path)
			if err != nil {
				t.Error(err)
				return
			}
			killed := mirrorPath(t)
			if err := os.WriteFile(killed, was, 0o644); err != nil {
				t.Error(err)
			}
			next, err := Create(Options{Path: killed, CoolDown: -1})
			if err != nil {
				t.Errorf("killed at %s: %v", step, err)
				return
			}
			if got := next.Entries(); len(got) != 2 || got[0].Name != "web" || got[1].Handle != entries[1].Handle {
				t.Errorf("killed at %s: %+v", step, got)
			}
			if err := next.Close(); err != nil {
				t.Error(err)
			}
			go func() { closed <- w.Close() }()
		}
		if err := w.Remake(entries); err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if steps.Load() <= n {
			break
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		left, err := filepath.Glob(filepath.Join(filepath.Dir(path), tempPrefix(path)+"*"))
		if err != nil || len(left) != 0 {
			t.Errorf("%v, %v are left", left, err)
		}
	}
	if !seen["create-opened"] || !seen["remake-ready"] || !seen["remake-renamed"] {
		t.Errorf("steps: %v", seen)
	}
}

// A control call that faults has stored only part of its words, even if the file is whole again by the next look at it.
// So Intact must report the fault until Remake.
func TestIntactReportsAFaultOfEveryControlCall(t *testing.T) {
	needFaultAddress(t)
	for name, call := range map[string]func(*Writer, *DeviceSlot){
		"SetState":      func(w *Writer, _ *DeviceSlot) { w.SetState(Fail) },
		"SetLimits":     func(w *Writer, _ *DeviceSlot) { _ = w.SetLimits(9, 9) },
		"SetPollPeriod": func(w *Writer, _ *DeviceSlot) { _ = w.SetPollPeriod(time.Second) },
		"Used":          func(w *Writer, _ *DeviceSlot) { w.Used() },
		"Free":          func(_ *Writer, s *DeviceSlot) { s.Free() },
	} {
		t.Run(name, func(t *testing.T) {
			path, w, e := webMirror(t)
			seg, err := w.DeviceSegment(1)
			if err != nil {
				t.Fatal(err)
			}
			s := mustSlot(t, seg)
			if err := w.SetDevice(e.Handle, s, 0, 0, 1<<32-1); err != nil {
				t.Fatal(err)
			}

			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, 0); err != nil {
				t.Fatal(err)
			}
			call(w, s)
			if err := writeOver(path, whole); err != nil {
				t.Fatal(err)
			}

			if err := w.Intact(); !errors.Is(err, ErrTruncated) {
				t.Errorf("after the fault: %v", err)
			}
			if err := w.Remake([]Entry{e}); err != nil {
				t.Fatal(err)
			}
			if err := w.Intact(); err != nil {
				t.Errorf("after Remake: %v", err)
			}
		})
	}
}

// Remake replaces what File reads, so the two must not race. (The race detector sees it if they do.)
func TestFileBesideRemakeNamesTheOldFileOrTheNew(t *testing.T) {
	_, w, e := webMirror(t)
	old := w.File()
	remade := make(chan error)
	go func() { remade <- w.Remake([]Entry{e}) }()

	seen := map[uint64]bool{}
	for {
		seen[w.File()] = true
		select {
		case err := <-remade:
			if err != nil {
				t.Fatal(err)
			}
		default:
			continue
		}
		break
	}
	delete(seen, old)
	delete(seen, w.File())
	if len(seen) > 0 || w.File() == old {
		t.Errorf("before %#x, after %#x, between them also %v", old, w.File(), seen)
	}
}
