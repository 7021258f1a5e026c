package plugin_test

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"os"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/plugin"
	"github.com/flowtally/flowtally/plugin/plugintest"
)

// A load balancer counts one of its services. The counts are read from the
// mirror, with package shm.
func ExampleLaunch() {
	ctx := context.Background()
	c, err := plugin.Launch(ctx, plugin.Options{
		Config: dataplane.Config{Instance: "lb", Interfaces: []dataplane.Interface{{Name: "eth0"}}},
		Logger: slog.Default(),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	match, err := flow.ParseMatch("ipv4 dst 192.0.2.10 tcp dport 443")
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.AddFlows(ctx, flow.Flow{Name: "web", Match: match})
	if errors.Is(err, dataplane.ErrUnavailable) {
		log.Print("the plugin is being restarted: try again")
	}
}

// The whole main function of a plugin.
func ExampleServe() {
	os.Exit(plugin.Serve(plugin.ServeOptions{Factory: plugintest.NewFake}))
}

// Another process changes the flows of a running `flowtally run`.
func ExampleDial() {
	svc, err := plugin.Dial(context.Background(), plugin.ControlPath("default"))
	if err != nil {
		log.Fatal(err)
	}
	defer svc.Close() // ends the connection, not the instance
	placements, err := svc.Placements(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range placements {
		log.Print(p.Flow.Name, p.Source.Backend)
	}
}
