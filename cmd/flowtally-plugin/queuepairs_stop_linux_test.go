package main

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/shm/shmtest"
)

// The number must include every operation counted by the device until then, and no outstanding one.
func TestACallerWhoGivesUpIsToldWhatCompleted(t *testing.T) {
	const depth = 256 // the default of SendDepth
	path := filepath.Join(t.TempDir(), "stop.mirror")
	c := launchPair(t, dataplane.Config{Instance: "stop", RDMA: withCompletionCounters(t), Mirror: dataplane.MirrorConfig{Path: path}})
	sent := deviceOf(t, shmtest.MustOpen(t, path), "sent")
	counted := func() uint64 {
		comp, errs, err := sent.Load()
		if err != nil || errs != 0 {
			t.Errorf("%d errors, %v", errs, err)
		}
		return comp
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	before := make(chan uint64, 1)
	go func() {
		defer cancel()
		for ctx.Err() == nil && counted() < 1000 {
			time.Sleep(time.Millisecond)
		}
		before <- counted()
	}()
	got, err := c.QueuePairs().Post(ctx, "near", dataplane.Send, 1<<40)
	if !errors.Is(err, context.Canceled) || got.Errors != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if least, most := <-before, counted(); got.Completed+depth < least || got.Completed > most {
		t.Errorf("it is told of %d, and the device had counted %d before it gave up and %d after", got.Completed, least, most)
	}
}
