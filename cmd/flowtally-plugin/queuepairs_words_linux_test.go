package main

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/shm/shmtest"
)

// The device in the plugin's process writes its counts into the segment beside the mirror;
// this process finds them by the mirror's catalogue and reads on, without a word to the plugin
// and with nothing published by its poller, while larger files take the mirror's name.
func TestReadersFollowADeviceOfAnotherProcess(t *testing.T) {
	const posted = 100_000
	path := filepath.Join(t.TempDir(), "words.mirror")
	c := launchPair(t, dataplane.Config{
		Instance: "words", Backend: "sim", Mirror: dataplane.MirrorConfig{Path: path, Counters: 64},
		Poll: dataplane.PollConfig{Period: time.Hour},
	})
	r := shmtest.MustOpen(t, path)
	sent, received := deviceOf(t, r, "sent"), deviceOf(t, r, "received")

	ended := make(chan error, 1)
	go func() {
		p, err := c.PostOperations(t.Context(), "near", dataplane.Send, posted)
		if err == nil && p != (dataplane.Posted{Completed: posted}) {
			err = fmt.Errorf("%d sends ended as %+v", posted, p)
		}
		ended <- err
	}()
	grown := make(chan error, 1)
	go func() {
		for round := range 3 {
			flows := make([]flow.Flow, 64<<round)
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
	reads, values := 0, 0
	for running := true; running; reads++ {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		default:
		}
		comp, errs, err := sent.Load()
		if err != nil || errs != 0 || comp < last || comp > posted {
			t.Fatalf("after %d: %d completions, %d errors, %v", last, comp, errs, err)
		}
		if comp != last {
			values++
		}
		last = comp
	}
	if err := <-grown; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d reads, %d different values", reads, values)
	if values < 10 {
		t.Errorf("%d values in %d reads: the words were not written while they were read", values, reads)
	}
	now, err := r.Follow()
	if err != nil {
		t.Fatal(err)
	}
	defer now.Close()
	if now == r {
		t.Error("the mirror has not grown")
	}
	for _, d := range []shm.Device{sent, received, deviceOf(t, now, "sent"), deviceOf(t, now, "received")} {
		if comp, errs, err := d.Load(); comp != posted || errs != 0 || err != nil {
			t.Errorf("the words say %d completions and %d errors, %v; want %d and none", comp, errs, err, posted)
		}
	}
	counter, err := now.Counter(shmtest.MustLookup(t, now, "sent"))
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
