package shm

import (
	"bytes"
	"log/slog"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// keptMirror is a mirror and what its writer logs.
func keptMirror(t *testing.T) (w *Writer, r *Reader, h Handle, log *bytes.Buffer) {
	t.Helper()
	log = new(bytes.Buffer)
	w, r, h = waitMirror(t, Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	return w, r, h, log
}

// cycleAt is a cycle that ends at now, and looks at the page's length if it is to.
// What that begins has ended when it answers.
func cycleAt(w *Writer, now int64, keeps bool) {
	w.lease.keptAt = now
	if keeps {
		w.lease.keptAt = now - leaseLength
	}
	w.BeginCycle()
	w.EndCycle(now)
	w.lease.mending.Lock()
	defer w.lease.mending.Unlock()
}

// cutShort is what one of the group does, when nobody is mending what was done before.
func cutShort(t *testing.T, w *Writer) {
	t.Helper()
	w.lease.mending.Lock()
	defer w.lease.mending.Unlock()
	if err := os.Truncate(waitPath(w.path), 0); err != nil {
		t.Fatal(err)
	}
}

func pageIsWhole(t *testing.T, w *Writer) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(waitPath(w.path), &st); err != nil || st.Size != waitLength || st.Blocks > w.lease.blocks {
		t.Errorf("%d bytes, %d blocks of %d, %v", st.Size, st.Blocks, w.lease.blocks, err)
	}
}

// The page is everybody's of the group, and one of them cuts it short: the writer
// lives, wakes at every cycle, so that waiters are woken as before, and mends the
// page, so that it does so no longer than it must.
func TestLeaseCutShort(t *testing.T) {
	if os.Getenv(emulator) != "" {
		t.Skip("the emulator does not tell the address of a fault")
	}
	w, r, h, log := keptMirror(t)
	for range 3 {
		cutShort(t, w)
		cycleAt(w, Now(), false)
		if !w.lease.lost || !w.lease.ahead(math.MaxInt64) {
			t.Error("not noticed")
		}
		wakesOne(t, w, r, h)
		// That may have taken so long that the page is whole.
		cutShort(t, w)
		cycleAt(w, Now(), false)
		cycleAt(w, Now(), true)
		pageIsWhole(t, w)
		now := Now()
		cycleAt(w, now, true)
		// Of who raised the lease on the page that is no more, nothing is known.
		if left := w.lease.until - now; w.lease.lost || left != leaseLength {
			t.Errorf("with the page whole again it wakes for %v, lost: %t", time.Duration(left), w.lease.lost)
		}
		wakesOne(t, w, r, h)
	}
	if n := strings.Count(log.String(), "page of waiters"); n != 1 {
		t.Errorf("said %d times:\n%s", n, log)
	}
}

// A page that is made longer, or has space behind its end, would fill the tmpfs.
func TestLeaseMadeLonger(t *testing.T) {
	const size = 1 << 20
	for name, fill := range map[string]func(fd int) error{
		"longer":              func(fd int) error { return unix.Fallocate(fd, 0, 0, size) },
		"longer, of nothing":  func(fd int) error { return unix.Ftruncate(fd, 1<<40) },
		"reserved behind it":  func(fd int) error { return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, size) },
		"shorter by one byte": func(fd int) error { return unix.Ftruncate(fd, waitLength-1) },
	} {
		t.Run(name, func(t *testing.T) {
			w, r, h, log := keptMirror(t)
			f, err := os.OpenFile(waitPath(w.path), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			for range 3 {
				if err := fill(int(f.Fd())); err != nil {
					t.Fatal(err)
				}
				cycleAt(w, Now(), true)
				pageIsWhole(t, w)
				wakesOne(t, w, r, h)
			}
			if n := strings.Count(log.String(), "page of waiters"); n != 1 {
				t.Errorf("said %d times:\n%s", n, log)
			}
		})
	}
}

// The length is looked at once a second, and by a heartbeat too: cycles with nothing
// wrong make no system call for it. It allocates nothing.
func TestLeaseIsKeptOnceASecond(t *testing.T) {
	const cycles, step = 2000, int64(5 * time.Millisecond) // ten seconds
	w, _, _, log := keptMirror(t)
	kept := 0
	w.hook = func(step string) {
		if step == "wait-kept" {
			kept++
		}
	}
	now := Now()
	cycle := func() {
		now += step
		w.BeginCycle()
		w.EndCycle(now)
	}
	if n := testing.AllocsPerRun(cycles, cycle); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if kept < 9 || kept > 11 {
		t.Errorf("looked %d times in %d cycles of %v", kept, cycles, time.Duration(step))
	}
	kept = 0
	for range 10 {
		now += leaseLength
		w.Heartbeat(now)
	}
	if kept != 10 {
		t.Errorf("looked %d times in 10 heartbeats a second apart", kept)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w.Heartbeat(now + leaseLength)
	if kept != 10 || strings.Contains(log.String(), "page of waiters") {
		t.Errorf("looked %d times, logged %q", kept, log)
	}
}
