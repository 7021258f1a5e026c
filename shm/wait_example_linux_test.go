package shm_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/flowtally/flowtally/shm"
)

// A program that is to go on after the hundredth packet, and waits no longer
// than it is ready to.
func ExampleReader_Wait() {
	path, stop := write("example", 10)
	defer stop()

	r, err := shm.OpenReader(path)
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	h, err := r.Lookup("web")
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	v, err := r.Wait(ctx, h, 100)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		fmt.Println("only", v.Packets)
	case errors.Is(err, shm.ErrNotAlive):
		fmt.Println("the writer ended")
	case err != nil:
		log.Fatal(err)
	default:
		fmt.Println("at least 100:", v.Packets >= 100)
	}
	// Output: at least 100: true
}

// write makes the mirror of an instance in a directory of its own, which becomes $XDG_RUNTIME_DIR. It publishes a
// counter that grows by step every millisecond, until stop.
func write(instance string, step uint64) (path string, stop func()) {
	dir, err := os.MkdirTemp("/dev/shm", "example-")
	if err != nil {
		log.Fatal(err)
	}
	os.Setenv("XDG_RUNTIME_DIR", dir)
	path = filepath.Join(dir, "flowtally", instance+".mirror")
	w, err := shm.Create(shm.Options{Path: path, Counters: shm.BlockLen})
	if err != nil {
		log.Fatal(err)
	}
	h, err := w.Add(shm.Entry{Name: "web", Kind: "flow"})
	if err != nil {
		log.Fatal(err)
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for n := uint64(0); ; n += step {
			now := shm.Now()
			var values shm.Block
			values[h.Index] = shm.Value{Packets: n, Bytes: 64 * n, SampledAt: now}
			w.BeginCycle()
			w.PublishBlock(0, &values)
			w.EndCycle(now)
			select {
			case <-end:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return path, func() {
		close(end)
		<-ended
		if err := errors.Join(w.Close(), os.RemoveAll(dir)); err != nil {
			log.Fatal(err)
		}
	}
}
