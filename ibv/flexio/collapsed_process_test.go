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

// rate is how fast the simulated device completes, in indices per second.
const rate = 100_000

// deviceMem is a page that the device, a process of its own, writes: the entry, then
// on lines of their own the producer index, which is posted before it completes, and how
// many were completed when the device stopped.
type deviceMem struct {
	entry   []byte
	word    *atomic.Uint32
	posted  *atomic.Uint64
	stopped *atomic.Uint64
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
	}
}

// TestMain is the device where the environment says so.
func TestMain(m *testing.M) {
	if path := os.Getenv("FLOWTALLY_FLEXIO_DEVICE"); path != "" {
		os.Exit(device(path))
	}
	os.Exit(m.Run())
}

// device completes at the rate, never faster over any stretch of time, with some
// posted ahead, until its parent asks it to end by closing its standard input.
func device(path string) int {
	t := new(testing.B) // for mapDevice; its cleanup is the end of the process
	mem := mapDevice(t, path)
	end := make(chan struct{})
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		close(end)
	}()
	rng := rand.New(rand.NewPCG(uint64(os.Getpid()), 1))
	start, done := time.Now(), uint64(0)
	for {
		select {
		case <-end:
			mem.stopped.Store(done)
			return 0
		default:
		}
		due := uint64(time.Since(start)) * rate / uint64(time.Second)
		for done < due {
			posted := min(due+rng.Uint64N(16384), done+32768) // the queue holds no more
			mem.posted.Store(posted)
			done = min(posted, due, done+1+rng.Uint64N(64))
			mem.word.Store(word(done - 1))
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
	for _, late := range []bool{false, true, false} {
		mem, stop := startDevice(t)
		c, err := NewCollapsed(mem.entry, CollapsedOptions{MaxRate: rate})
		if err != nil {
			t.Fatal(err)
		}
		c.Sample(clock)
		for until := clock() + 1500*time.Millisecond; clock() < until; { // 150,000: more than two times around
			if c.Sample(clock); late {
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
			t.Errorf("samples more than %v apart at %d per second are not ambiguous", c.Horizon(), rate)
		default:
			exact++
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
