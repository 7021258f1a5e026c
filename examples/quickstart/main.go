package main

import (
	"context"
	"fmt"
	"log"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/plugin"
	"github.com/flowtally/flowtally/shm"
)

func main() {
	config := dataplane.Config{Instance: "quickstart", Backend: flow.Sim, Flows: []flow.Flow{flow.MustParse("web", "tcp dport 443")}}
	defer must(plugin.Launch(context.Background(), plugin.Options{Config: config})).Close() // the process that counts
	counter := must(must(shm.Open("quickstart")).Counter("web"))
	fmt.Println("web:", must(counter.Wait(context.Background(), 1000)).Packets, "packets") // the writer wakes this process
}
func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
