package shm

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/times"
)

// If there is no room for a segment, Add refuses the counter and nothing else happens. Writer
// and readers continue, slots of removed counters can be used, and once there is room again,
// Add succeeds.
func TestFailedGrowthRefusesOneCounterAndNothingElse(t *testing.T) {
	dir := filepath.Dir(mirrorPath(t))
	need.Cap(t, "sys_admin")
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=6m,mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	path := filepath.Join(dir, "m.mirror")
	w, err := Create(Options{Path: path, History: 8, CoolDown: -1, HeartbeatPeriod: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	hs := addN(t, w, SegmentLen, false)
	r := mustOpen(t, path)
	c := mustCounter(t, r, hs[0])
	goesOn := func(n uint64) {
		t.Helper()
		publishAll(w, hs, func(Handle) Value { return patterned(n) })
		if v, err := c.Load(); err != nil || v != patterned(n) {
			t.Error(v, err)
		}
		if s := r.Status(); s.State != Run || s.Counters != SegmentLen || s.Records != 0 {
			t.Errorf("%+v", s)
		}
		checkFile(t, path)
	}
	goesOn(1)
	for n, latency := range []bool{false, true} {
		_, err := w.Add(Entry{Name: "more", Latency: latency})
		if !errors.Is(err, ErrFull) || !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "remount") {
			t.Error(err)
		}
		t.Log(err)
		if s := r.Status(); s.Refused != uint64(n+1) {
			t.Errorf("%d refused", s.Refused)
		}
		goesOn(uint64(n + 2))
	}
	if err := w.Remove(hs[7]); err != nil {
		t.Fatal(err)
	}
	hs[7] = mustAdd(t, w, Entry{Name: "in the place of another"})
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "size=20m,mode=0755"); err != nil {
		t.Fatal(err)
	}
	if h := mustAdd(t, w, Entry{Name: "more"}); h.Index != SegmentLen {
		t.Errorf("%+v", h)
	}
	if h := mustAdd(t, w, Entry{Name: "l", Latency: true}); h.Index != 2*SegmentLen {
		t.Errorf("%+v", h)
	}
	checkFile(t, path)
}

// A reader opens a mirror of one segment, and reads all counters while it grows to sixteen
// segments and each cycle publishes every counter. Each value must be whole, and at least as
// new as the last cycle completed before the read. The reader need not call anything for
// growth.
func TestReadersSeeWholeValuesWhileTheMirrorGrows(t *testing.T) {
	const segments, perSegment = 16, 40
	path := mirrorPath(t)
	w := mustCreate(t, Options{Path: path, History: 8, CoolDown: -1, HeartbeatPeriod: patience})
	var mu sync.Mutex
	hs := addN(t, w, perSegment, false)
	publishAll(w, hs, func(Handle) Value { return patterned(1) })
	r := mustOpen(t, path)
	var done atomic.Bool
	var wg sync.WaitGroup
	defer wg.Wait()
	defer done.Store(true)
	wg.Go(func() {
		for n := uint64(2); !done.Load(); n++ {
			mu.Lock()
			publishAll(w, hs, func(Handle) Value { return patterned(n) })
			mu.Unlock()
		}
	})
	target := uint64(times.Of(t, "FLOWTALLY_GROW_READS", 1e7, 1e6))
	counters := make(map[string]*HandleCounter)
	var reads uint64
	var list []*HandleCounter
	for n := range segments {
		if n > 0 {
			class := n % 3 / 2 // two segments of blocks, then one of records
			mustGrow(t, w, class)
			for i := range perSegment {
				h := mustAdd(t, w, Entry{Name: fmt.Sprintf("s%d-%d", n, i), Latency: class == classRecords})
				mu.Lock()
				hs = append(hs, h)
				mu.Unlock()
			}
		}
		es, err := r.Entries()
		if err != nil || len(es) != (n+1)*perSegment {
			t.Fatalf("%d segments: %d entries, %v", n+1, len(es), err)
		}
		for _, e := range es {
			if h, err := r.Lookup(e.Name); err != nil || h != e.Handle {
				t.Fatal(e.Name, h, err)
			}
			if counters[e.Name] == nil {
				c := mustCounter(t, r, e.Handle)
				counters[e.Name], list = &c, append(list, &c)
				// From the next cycle on it is published.
				for begin := r.Status().Cycle; r.Status().Cycle < begin+2; {
					runtime.Gosched()
				}
			}
		}
		for ; reads < target*uint64(n+1)/segments; reads++ {
			before := atomic.LoadUint64(&r.v.hdr.cycleDone)
			c := list[reads%uint64(len(list))]
			v, err := c.Load()
			if errors.Is(err, ErrBusy) {
				continue
			}
			if err != nil || !isPatterned(v) || v.Packets < before {
				t.Fatalf("%v reads %+v, %v; cycle %d was complete", c.Handle(), v, err, before)
			}
		}
		var s Snapshot
		if err := r.Snapshot(&s); err != nil && !errors.Is(err, ErrBusy) {
			t.Fatal(err)
		}
	}
	if n := r.v.declared(); n != segments {
		t.Fatalf("%d segments", n)
	}
	t.Logf("%d reads of %d counters in %d segments, %d cycles", reads, len(list), segments, r.Status().Cycle)
}

// threadTime is the CPU time of this thread.
func threadTime(t *testing.T) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// No cycle is held up while the mirror grows from 4,096 counters to 65,536, with latency counters among them. The thread of the
// poller spends at most a few times as long on any cycle as on one of the grown mirror. Other work of the machine is measured too,
// so one run in five has to hold.
func TestGrowthDelaysNoCycle(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes every access a call")
	}
	const most = 20
	for range 5 {
		longest, ordinary := cyclesOfGrowth(t)
		t.Logf("the longest cycle took %v of CPU time, an ordinary one %v", longest, ordinary)
		if longest <= most*ordinary {
			return
		}
	}
	t.Errorf("no run in which every cycle took at most %d times as long as an ordinary one", most)
}

// cyclesOfGrowth grows a mirror beside a poller. It returns the CPU time of the poller's longest cycle meanwhile, and that of the
// median of cycles after the growth.
func cyclesOfGrowth(t *testing.T) (longest, ordinary time.Duration) {
	path := mirrorPath(t)
	w := mustCreate(t, Options{Path: path, History: -1, CoolDown: -1, HeartbeatPeriod: patience})
	addN(t, w, SegmentLen, false)

	var done atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		n := uint64(1)
		for ; !done.Load(); n++ {
			longest = max(longest, timeOfCycle(t, w, n))
			time.Sleep(100 * time.Microsecond)
		}

		var after [21]time.Duration
		for i := range after {
			after[i] = timeOfCycle(t, w, n+uint64(i))
		}
		slices.Sort(after[:])
		ordinary = after[len(after)/2]
	})
	for i := range 15 * SegmentLen {
		mustAdd(t, w, Entry{Name: fmt.Sprint("more", i), Latency: i%16 == 0})
	}
	done.Store(true)
	wg.Wait()
	if c, l := w.Used(); c+l != 65536 {
		t.Fatalf("%d and %d counters", c, l)
	}
	return longest, ordinary
}

// timeOfCycle publishes every block, and 64 records of each segment of records. It returns the CPU time of that.
func timeOfCycle(t *testing.T, w *Writer, cycle uint64) time.Duration {
	var b Block
	for i := range b {
		b[i] = patterned(cycle)
	}

	begin := threadTime(t)
	w.BeginCycle()
	for n := range len(w.live) {
		w.PublishBlock(n, &b)
	}
	for n, s := range *w.v.list.Load() {
		for i := uint32(0); s.kind == kindRecords && i < 64; i++ {
			w.PublishRecord(uint32(n)*SegmentLen+i, b[0])
		}
	}
	w.EndCycle(Now())
	return threadTime(t) - begin
}

// After Reserve the mirror need not grow for those counters, even if slots cool down, and after a takeover.
func TestReservedSlotsNeedNoGrowth(t *testing.T) {
	const more = 2*SegmentLen + 1
	path := mirrorPath(t)
	options := Options{Path: path, History: 8, CoolDown: 1000 * time.Hour, HeartbeatPeriod: patience}
	w := mustCreate(t, options)
	segments := func() int { return len(*w.v.list.Load()) }
	if err := w.Remove(addN(t, w, 2, false)[0]); err != nil { // its slot cools down
		t.Fatal(err)
	}
	for range 2 {
		if err := w.Reserve(more, false); err != nil {
			t.Fatal(err)
		}
		if n := segments(); n != 3 {
			t.Fatalf("%d segments", n)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		w = mustCreate(t, options)
	}
	for i := range more {
		mustAdd(t, w, Entry{Name: fmt.Sprint("more", i)})
	}
	if n := segments(); n != 3 {
		t.Errorf("%d segments for %d counters", n, more)
	}
	checkFile(t, path)
}
