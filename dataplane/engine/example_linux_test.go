package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
)

// A program that counts in its own process declares a flow, reads its counter where
// every nanosecond counts, and waits for a hundred packets. The backend "sim" counts traffic
// that does not exist; with Interfaces, and without Backend, the traffic of the interface counts.
func ExampleNew() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("/dev/shm", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	svc, err := engine.New(ctx, dataplane.Config{
		Instance: "lb", Backend: "sim",
		Mirror: dataplane.MirrorConfig{Path: filepath.Join(dir, "lb.mirror")},
	}, engine.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer svc.Close()

	match, err := flow.ParseMatch("ipv4 dst 192.0.2.10 tcp dport 443")
	if err != nil {
		log.Fatal(err)
	}
	placed, err := svc.AddFlows(ctx, flow.Flow{Name: "web", Match: match})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: %s, counted by %s\n", placed[0].Flow.Name, placed[0].Flow.Match, placed[0].Source.Backend)

	r, err := shm.OpenPath(filepath.Join(dir, "lb.mirror"), shm.ReaderOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	web, err := r.Counter("web") // once
	if err != nil {
		log.Fatal(err)
	}
	before, err := web.Load() // the hot path: no system call, no lock, no allocation
	if err != nil {
		log.Fatal(err)
	}
	after, err := web.Wait(ctx, before.Packets+100)
	switch {
	case errors.Is(err, shm.ErrNotAlive):
		fmt.Println("the process that counts has ended")
	case err != nil:
		log.Fatal(err)
	default:
		fmt.Println("a hundred more:", after.Packets-before.Packets >= 100)
	}
	// Output:
	// web: ipv4 dst 192.0.2.10 tcp dport 443, counted by sim
	// a hundred more: true
}
