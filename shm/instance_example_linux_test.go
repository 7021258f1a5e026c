package shm_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/flowtally/flowtally/shm"
)

// A program that reads the counter web of the instance lb for as long as it runs: over restarts of
// the writer, growth, and a mirror that is made anew.
func ExampleOpen() {
	_, stop := write("lb", 50_000)
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	r, err := shm.Open("lb")
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	web, err := r.Counter("web")
	if err != nil {
		log.Fatal(err)
	}
	before, err := web.Load() // of one instant, without a system call
	if err != nil {
		log.Fatal(err)
	}
	v, err := web.Wait(ctx, 1_000_000) // sleeps until there are so many
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("at least a million:", v.Packets >= 1_000_000 && v.Packets >= before.Packets)
	// Output: at least a million: true
}
