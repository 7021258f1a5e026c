package main

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/shm/shmtest"
)

// The device in the plugin's process writes its counts into the segment beside the mirror. This process finds them
// through the mirror's catalogue, and goes on reading while the mirror grows. It asks the plugin nothing, and the
// poller publishes nothing.
func TestReadersFollowADeviceOfAnotherProcess(t *testing.T) {
	const round = 10_000 // of operations, until enough was seen of them
	path := filepath.Join(t.TempDir(), "words.mirror")
	c := launchPair(t, dataplane.Config{
		Instance: "words", Backend: "sim", RDMA: withCompletionCounters(t), Mirror: dataplane.MirrorConfig{Path: path},
		Poll: dataplane.PollConfig{Period: time.Hour},
	})
	r := shmtest.MustOpen(t, path)
	sent, received := deviceOf(t, r, "sent"), deviceOf(t, r, "received")

	var begun atomic.Uint64 // operations
	enough, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		for done := false; !done && err == nil; {
			begun.Add(round)
			var p dataplane.Posted
			if p, err = c.QueuePairs().Post(t.Context(), "near", dataplane.Send, round); err == nil && p != (dataplane.Posted{Completed: round}) {
				err = fmt.Errorf("%d sends ended as %+v", round, p)
			}
			select {
			case <-enough:
				done = true
			default:
			}
		}
		ended <- err
	}()
	grown := make(chan error, 1)
	go func() {
		for round := range 3 {
			flows := make([]flow.Flow, 1024<<round)
			for i := range flows {
				flows[i] = flow.Flow{Name: fmt.Sprintf("f%d-%d", round, i)}
			}
			if _, err := c.AddFlows(t.Context(), flows...); err != nil {
				grown <- err
				return
			}
		}
		grown <- nil
	}()
	var last uint64
	reads, values, larger := 0, 0, false
	for until := time.Now().Add(time.Minute); values < 10 || !larger; reads++ {
		select {
		case err := <-ended:
			t.Fatalf("after %d values posting ended: %v", values, err)
		case err := <-grown:
			if err != nil {
				t.Fatal(err)
			}
			larger = true
		default:
		}
		comp, errs, err := sent.Load()
		if most := begun.Load(); err != nil || errs != 0 || comp < last || comp > most {
			t.Fatalf("after %d, of %d that were begun: %d completions, %d errors, %v", last, most, comp, errs, err)
		}
		if comp != last {
			values++
		}
		last = comp
		if time.Now().After(until) {
			t.Fatalf("%d values in %d reads, the mirror has grown: %v: the words are not written while they are read", values, reads, larger)
		}
	}
	close(enough)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	posted := begun.Load()
	t.Logf("%d reads, %d different values, %d operations", reads, values, posted)
	if n := r.Status().Counters; n <= shm.SegmentLen {
		t.Errorf("the mirror has not grown: it holds %d counters", n)
	}
	for _, d := range []shm.Device{sent, received, deviceOf(t, r, "sent"), deviceOf(t, r, "received")} {
		if comp, errs, err := d.Load(); comp != posted || errs != 0 || err != nil {
			t.Errorf("the words say %d completions and %d errors, %v; want %d and none", comp, errs, err, posted)
		}
	}
	counter, err := r.Counter(shmtest.MustLookup(t, r, "sent"))
	if err != nil {
		t.Fatal(err)
	}
	if v, err := counter.Load(); err != nil || v.Packets == posted {
		t.Errorf("the poller published %+v, %v: it was to stand still", v, err)
	}
}

func deviceOf(t *testing.T, r *shm.Reader, name string) shm.Device {
	t.Helper()
	d, err := r.Device(shmtest.MustLookup(t, r, name))
	if err != nil {
		t.Fatal(err)
	}
	return d
}
