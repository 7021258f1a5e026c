package main

import (
	"context"
	"fmt"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/plugin"
	"github.com/flowtally/flowtally/shm"
)

func main() {
	ctx, web := context.Background(), flow.MustParse("web", "ipv4 dst 192.0.2.10 tcp dport 443")
	config := dataplane.Config{Instance: "quickstart", Backend: flow.Sim, Flows: []flow.Flow{web}}
	defer must(plugin.Launch(ctx, plugin.Options{Config: config})).Close() // the process that counts
	counter := must(must(shm.Open("quickstart")).Counter("web"))
	fmt.Println("web:", must(counter.Wait(ctx, 1000)).Packets, "packets") // the writer wakes this process
}
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
