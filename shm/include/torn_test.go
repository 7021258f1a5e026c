package include

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/lab/times"
	"github.com/flowtally/flowtally/shm"
)

// Two readers in C and two in Go run beside a writer at full speed. No read may
// be torn, and no value may fall.
func TestNoReadIsTornInCAndGo(t *testing.T) {
	torn := build(t, "torn")
	reads, least := uint64(times.Of(t, "FLOWTALLY_TORN_READS", 2e7, 2e7)), 2*time.Second // of all readers together
	if testing.Short() {
		least /= 10
	}
	path, w := newMirror(t, shm.Options{Counters: 128, LatencyCounters: 1, History: 1024})
	names := []string{"a", "b", "fast"}
	var handles []shm.Handle
	for i := range 128 { // two full blocks; a is in the first and b in the second
		name := fmt.Sprintf("c%d", i)
		switch i {
		case 5:
			name = "a"
		case 100:
			name = "b"
		}
		h := add(t, w, shm.Entry{Name: name})
		if i == 5 || i == 100 {
			handles = append(handles, h)
		}
	}
	handles = append(handles, add(t, w, shm.Entry{Name: "fast", Latency: true}))

	var stop atomic.Bool
	published := make(chan uint64)
	go func() {
		var b shm.Block
		n := uint64(0)
		for ; !stop.Load(); n++ {
			for i := range b {
				b[i] = value(n)
			}
			w.BeginCycle()
			w.PublishBlock(0, &b)
			w.PublishBlock(1, &b)
			w.PublishRecord(handles[2].Index, value(n))
			w.AppendHistory(handles[0], value(n))
			w.EndCycle(shm.Now())
		}
		published <- n
	}()

	start := time.Now()
	lines := make(chan string, 4)
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			args := append([]string{path, fmt.Sprint(reads / 4), fmt.Sprint(least.Seconds()), fmt.Sprint(enough)}, names...)
			out, err := exec.CommandContext(t.Context(), torn, args...).CombinedOutput()
			if err != nil {
				t.Errorf("C reader: %v: %s", err, out)
			}
			lines <- strings.TrimSpace(string(out)) + " (C)"
		})
		readers.Go(func() { lines <- readGo(t, path, reads/4, least, handles) + " (Go)" })
	}
	readers.Wait()
	took := time.Since(start)
	stop.Store(true)
	n := <-published
	close(lines)
	var total, seen uint64
	for line := range lines {
		t.Log(line)
		var made, changes uint64
		if _, err := fmt.Sscanf(line, "reads %d changes %d", &made, &changes); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		total, seen = total+made, seen+changes
		// Reads beside a writer that stands still show nothing.
		if changes < enough {
			t.Errorf("a reader waited three minutes for %d changes: %s", enough, line)
		}
	}
	t.Logf("%d reads in %.1f s against %d cycles, %d of them saw a new value", total, took.Seconds(), n, seen)
}

// enough is how many new values each reader waits for. One that shares its CPU
// with the writer sees a few per time slice only.
const enough = 500

// readGo is testdata/torn.c in Go.
func readGo(t *testing.T, path string, reads uint64, least time.Duration, handles []shm.Handle) string {
	r, err := shm.OpenReader(path)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer r.Close()
	counters := make([]shm.HandleCounter, len(handles))
	last := make([]uint64, len(handles))
	for i, h := range handles {
		if counters[i], err = r.Counter(h); err != nil && !errors.Is(err, shm.ErrBusy) {
			t.Error(err)
			return ""
		}
	}
	check := func(v shm.Value) bool {
		if v != value(v.Packets) && v != (shm.Value{}) {
			t.Errorf("torn: %+v", v)
			return false
		}
		return true
	}
	var snap shm.Snapshot
	var done, changes, busy, snapshots uint64
	end := time.Now().Add(least)
	limit := end.Add(3 * time.Minute)
	for done < reads || time.Now().Before(end) || changes < enough && time.Now().Before(limit) {
		for range 1000 {
			for i := range counters {
				v, err := counters[i].Load()
				if errors.Is(err, shm.ErrBusy) {
					busy++
					continue
				}
				if err != nil {
					t.Error(err)
					return ""
				}
				done++
				if !check(v) {
					return ""
				}
				if v.Packets < last[i] {
					t.Errorf("counter %d went back from %d to %d", i, last[i], v.Packets)
					return ""
				}
				if v.Packets != last[i] {
					changes++
				}
				last[i] = v.Packets
			}
		}
		if err := r.Snapshot(&snap); errors.Is(err, shm.ErrBusy) {
			busy++
			continue
		} else if err != nil {
			t.Error(err)
			return ""
		}
		snapshots++
		for _, h := range handles {
			v, err := snap.Value(h)
			if err != nil || !check(v) {
				t.Errorf("snapshot: %+v, %v", v, err)
				return ""
			}
		}
	}
	return fmt.Sprintf("reads %d changes %d busy %d snapshots %d", done, changes, busy, snapshots)
}
