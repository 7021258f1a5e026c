//go:build unix

package flexio

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/edsrzf/mmap-go"

	"github.com/flowtally/flowtally/internal/lab/seed"
)

// The simulated device completes at most so many indices at once, and in a second: its
// pace is a tenth below what its readers are told, so that a burst is within.
const (
	maxRate = 100_000
	pace    = maxRate * 9 / 10
	burst   = 1024
)

// deviceMem is a page that the device, a process of its own, writes: the entry, then
// on lines of their own the producer index, which is posted before it completes, and how
// many were completed when the device stopped.
type deviceMem struct {
	entry   []byte
	word    *atomic.Uint32
	posted  *atomic.Uint64
	stopped *atomic.Uint64
	failed  *atomic.Uint64 // completions with an error
}

func mapDevice(t testing.TB, path string) deviceMem {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	m, err := mmap.Map(f, mmap.RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Unmap() })
	return deviceMem{
		entry: m[:64:64], word: (*atomic.Uint32)(unsafe.Pointer(&m[60])),
		posted: (*atomic.Uint64)(unsafe.Pointer(&m[128])), stopped: (*atomic.Uint64)(unsafe.Pointer(&m[256])),
		failed: (*atomic.Uint64)(unsafe.Pointer(&m[320])),
	}
}

// TestMain is the device where the environment says so.
func TestMain(m *testing.M) {
	if path := os.Getenv("FLOWTALLY_FLEXIO_DEVICE"); path != "" {
		os.Exit(device(path))
	}
	os.Exit(m.Run())
}

// device completes at its pace, with some posted ahead, until its parent asks it to end by
// closing its standard input. What it could not do while it had no CPU is not made up
// for: over any stretch of time it is at most a burst ahead of its pace. One completion
// in 64 is an error, and so is the last.
func device(path string) int {
	t := new(testing.B) // for mapDevice; its cleanup is the end of the process
	mem := mapDevice(t, path)
	end := make(chan struct{})
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		close(end)
	}()
	rng := rand.New(rand.NewPCG(uint64(os.Getpid()), 1))
	var done, posted, failed uint64
	complete := func(n uint64, bad bool) {
		posted = max(posted, done+n+rng.Uint64N(16384)) // less than the queue holds
		mem.posted.Store(posted)
		if done += n; bad {
			failed++
			mem.failed.Store(failed)
		}
		mem.word.Store(word(done-1, bad))
	}
	last, credit := time.Now(), time.Duration(0)
	for {
		select {
		case <-end:
			complete(1, true)
			mem.stopped.Store(done)
			return 0
		default:
		}
		now := time.Now()
		credit = min(credit+now.Sub(last), burst*time.Second/pace)
		last = now
		for n := uint64(1 + rng.IntN(64)); credit >= time.Duration(n)*time.Second/pace; n = uint64(1 + rng.IntN(64)) {
			credit -= time.Duration(n) * time.Second / pace
			complete(n, rng.IntN(64) == 0)
		}
	}
}

// startDevice answers the device's memory, and what stops it: a function that goes on
// sampling meanwhile, as the end of a process takes a second under -race.
func startDevice(t *testing.T) (deviceMem, func(sample func()) uint64) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "device")
	mem := mapDevice(t, path)
	c, err := NewCollapsed(mem.entry, CollapsedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.Init()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "FLOWTALLY_FLEXIO_DEVICE="+path)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return mem, func(sample func()) uint64 {
		if err := stdin.Close(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(10 * time.Second); mem.stopped.Load() == 0 && time.Now().Before(deadline); {
			sample()
			time.Sleep(time.Millisecond)
		}
		sample()
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		return mem.stopped.Load()
	}
}

// TestCollapsedOfAnotherProcess samples a device that runs beside, now and then too
// late: every count is exact or says that it is ambiguous.
func TestCollapsedOfAnotherProcess(t *testing.T) {
	rng := seed.Rand(t)
	began := time.Now()
	clock := func() time.Duration { return time.Since(began) }
	exact, ambiguous := 0, 0
	// A machine may be too busy to sample in time, and then a run is ambiguous: others follow.
	for _, late := range []bool{true, false, false, false, false, false} {
		if exact > 0 {
			break
		}
		mem, stop := startDevice(t)
		c, err := NewCollapsed(mem.entry, CollapsedOptions{MaxRate: maxRate})
		if err != nil {
			t.Fatal(err)
		}
		c.Sample(clock)
		for until := clock() + 30*time.Second; mem.posted.Load() < 2*65536+16384 && clock() < until; { // twice around
			got := c.Sample(clock)
			if posted := mem.posted.Load(); !got.Ambiguous && got.Completed > posted {
				t.Fatalf("counted %d of %d that were posted", got.Completed, posted)
			}
			if late {
				time.Sleep(c.Horizon() + 10*time.Millisecond)
			}
			time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
		}
		var got Count
		total := stop(func() { got = c.Sample(clock) })
		switch {
		case got.Ambiguous:
			ambiguous++
		case got.Completed != total:
			t.Fatalf("counted %d of %d, and does not say so", got.Completed, total)
		case late:
			t.Errorf("samples more than %v apart at %d per second are not ambiguous", c.Horizon(), maxRate)
		case total < 2*65536:
			t.Fatalf("the device completed %d, which is not twice around", total)
		default:
			exact++
		}
		// Of its errors those were seen that were not overwritten, and the last was not.
		if failed := mem.failed.Load(); got.Errors < 1 || got.Errors > failed || got.Last == nil || got.Last.Opcode != OpReqErr {
			t.Errorf("%d errors, last %+v; the device wrote %d", got.Errors, got.Last, failed)
		}
	}
	t.Logf("%d runs exact, %d ambiguous", exact, ambiguous)
	if exact == 0 {
		t.Error("no run was sampled in time")
	}
}

// TestCollapsedOfAnotherProcessWithProducer samples as rarely as it likes.
func TestCollapsedOfAnotherProcessWithProducer(t *testing.T) {
	rng := seed.Rand(t)
	mem, stop := startDevice(t)
	c, err := NewCollapsed(mem.entry, CollapsedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	last := uint64(0)
	for range 10 {
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
		got := c.SampleUpTo(mem.posted.Load)
		if got.Ambiguous || got.Completed < last {
			t.Fatalf("got %+v after %d", got, last)
		}
		last = got.Completed
	}
	total := stop(func() {})
	if got := c.SampleUpTo(mem.posted.Load); got.Completed != total {
		t.Errorf("counted %+v of %d", got, total)
	}
}
