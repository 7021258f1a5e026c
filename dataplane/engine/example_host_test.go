package engine_test

import (
	"context"
	"fmt"
	"log"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// Probe reports the features of this host, before an instance exists.
func ExampleProbe() {
	for _, r := range engine.Probe(context.Background(), engine.ProbeOptions{Interfaces: []string{"eth0"}}) {
		fmt.Println(r.Object, r.Feature, r.Answer, r.Reason)
	}
}

// Check reports flows of a configuration that the tables cannot hold. It needs no privilege.
func ExampleCheck() {
	err := engine.Check(dataplane.Config{
		Interfaces: []dataplane.Interface{{Name: "eth0"}}, Flows: []flow.Flow{flow.MustParse("web", "tcp dport 443")},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("it can be started")
	// Output: it can be started
}
