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

// deviceMem is a page that the device, a separate process, writes: the entry, and the state that
// the test needs, each on a line of its own.
type deviceMem struct {
	entry   []byte
	word    *atomic.Uint32 // of the entry
	posted  *atomic.Uint64 // the producer index, stored before it completes
	ticks   *atomic.Uint64 // how many were completed, stored before the entry: the device's clock
	failed  *atomic.Uint64 // completions with an error
	stopped *atomic.Uint64 // how many were completed when the device stopped
	allowed *atomic.Uint64 // how many it may complete: the test's
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
	line := func(n int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&m[64*n])) }
	return deviceMem{
		entry: m[:64:64], word: (*atomic.Uint32)(unsafe.Pointer(&m[60])),
		posted: line(2), ticks: line(3), failed: line(4), stopped: line(5), allowed: line(6),
	}
}

// clock is the time by which the device is never faster than 50,000 in a second,
// however much CPU either process gets.
func (d deviceMem) clock() time.Duration {
	return time.Duration(d.ticks.Load()) * 20 * time.Microsecond
}

// maxRate is the rate given to a reader: higher than the real one, as the clock is up to 64
// completions ahead of the entry. Its horizon is 58,982 completions.
const maxRate = 55_555

// TestMain is the device where the environment says so.
func TestMain(m *testing.M) {
	if path := os.Getenv("FLOWTALLY_FLEXIO_DEVICE"); path != "" {
		os.Exit(device(path))
	}
	os.Exit(m.Run())
}

// device completes as many indices as it is allowed to, with some posted ahead, until its parent
// closes its standard input. One completion in 64 is an error, and so is the last.
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
		posted = max(posted, done+n+rng.Uint64N(16384)) // less ahead than the queue holds
		mem.posted.Store(posted)
		if done += n; bad {
			failed++
			mem.failed.Store(failed)
		}
		mem.ticks.Store(done)
		mem.word.Store(word(done-1, bad))
	}
	for {
		select {
		case <-end:
			complete(1, true)
			mem.stopped.Store(done)
			return 0
		default:
		}
		for allowed := mem.allowed.Load(); done < allowed; {
			complete(min(1+rng.Uint64N(64), allowed-done), rng.IntN(64) == 0)
		}
		time.Sleep(20 * time.Microsecond)
	}
}

// startDevice returns the device's memory, and a function that stops the device and returns the
// number of its completions.
func startDevice(t *testing.T) (deviceMem, func() uint64) {
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
	return mem, func() uint64 {
		if err := stdin.Close(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		return mem.stopped.Load()
	}
}

// reached waits until the device has completed that many.
func (d deviceMem) reached(t *testing.T, n uint64) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); d.ticks.Load() < n; time.Sleep(20 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the device has completed %d of %d", d.ticks.Load(), n)
		}
	}
}

// The device is another process, which completes 20 times 65,536 indices meanwhile. Every count is
// exact as long as samples are less than a horizon apart. After the first longer gap it is
// ambiguous.
func TestCollapsedOfAnotherProcessIsExactWithinTheHorizon(t *testing.T) {
	rng := seed.Rand(t)
	samples := 0
	for _, late := range []bool{false, true, false, true} {
		mem, stop := startDevice(t)
		c, err := NewCollapsed(mem.entry, CollapsedOptions{MaxRate: maxRate})
		if err != nil {
			t.Fatal(err)
		}
		lost := false
		sample := func() Count {
			got := c.Sample(mem.clock)
			if done := mem.ticks.Load(); !lost && (got.Ambiguous || got.Completed > done) {
				t.Fatalf("%+v, and the device has completed %d", got, done)
			}
			samples++
			return got
		}
		sample()
		for allowed, gap := uint64(0), rng.Uint64N(10); allowed < 20*65536; gap-- {
			step := 1 + rng.Uint64N(50_000)
			if late && gap == 0 {
				step = 65_536 + rng.Uint64N(65_536)
			}
			allowed += step
			mem.allowed.Store(allowed)
			if late && gap == 0 {
				mem.reached(t, allowed) // before the next sample
				lost = true
				if got := sample(); !got.Ambiguous {
					t.Errorf("%+v after %d completions unseen", got, step)
				}
			}
			for n := rng.IntN(20); n > 0 && mem.ticks.Load() < allowed; n-- {
				sample() // while the device goes on
			}
			mem.reached(t, allowed)
			mem.settled(t, allowed)
			if got := sample(); got.Ambiguous != lost || !lost && got.Completed != allowed {
				t.Fatalf("counted %+v of %d, after a long gap: %t", got, allowed, lost)
			}
		}
		total := stop()
		got := sample()
		if got.Ambiguous != late || !late && got.Completed != total {
			t.Errorf("counted %+v of %d, late %t", got, total, late)
		}
		// Of its errors those were seen that were not overwritten, and the last was not.
		if failed := mem.failed.Load(); got.Errors < 1 || got.Errors > failed || got.Last == nil || got.Last.Opcode != OpReqErr {
			t.Errorf("%d errors, last %+v; the device wrote %d", got.Errors, got.Last, failed)
		}
	}
	t.Logf("%d samples of four devices", samples)
}

// settled waits until the entry tells the last of that many.
func (d deviceMem) settled(t *testing.T, n uint64) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); uint16(loadLast(d.entry)>>16) != uint16(n-1); time.Sleep(20 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the entry does not tell %d", n)
		}
	}
}

// With the producer index, samples may be any time apart.
func TestCollapsedOfAnotherProcessIsExactWithTheProducerIndex(t *testing.T) {
	rng := seed.Rand(t)
	mem, stop := startDevice(t)
	c, err := NewCollapsed(mem.entry, CollapsedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	last, allowed := uint64(0), uint64(0)
	for range 40 {
		allowed += rng.Uint64N(300_000)
		mem.allowed.Store(allowed)
		mem.reached(t, last+rng.Uint64N(allowed-last+1)) // and the device goes on
		got := c.SampleUpTo(mem.posted.Load)
		if got.Ambiguous || got.Completed < last || got.Completed > mem.ticks.Load() {
			t.Fatalf("got %+v after %d, the device has completed %d", got, last, mem.ticks.Load())
		}
		last = got.Completed
	}
	mem.reached(t, allowed)
	total := stop()
	if got := c.SampleUpTo(mem.posted.Load); got.Completed != total || total != allowed+1 {
		t.Errorf("counted %+v of %d", got, total)
	}
}
