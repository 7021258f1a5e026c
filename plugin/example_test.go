package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/plugintest"
	"github.com/flowtally/flowtally/plugin"
)

// A load balancer counts one of its services. It reads the counter from the mirror, with package shm.
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
	_, err = c.AddFlows(ctx, flow.MustParse("web", "ipv4 dst 192.0.2.10 tcp dport 443"))
	if errors.Is(err, dataplane.ErrUnavailable) {
		log.Print("the plugin is being restarted: try again")
	}
}

// The main function of a plugin.
func ExampleServe() {
	os.Exit(plugin.Serve(plugin.ServeOptions{Factory: plugintest.NewFake}))
}

// Another process changes the flows of a running `flowtally run`.
func ExampleDial() {
	svc, err := plugin.Dial(context.Background(), plugin.FindControl("default"))
	if err != nil {
		log.Fatal(err)
	}
	defer svc.Close() // ends the connection, not the instance
	placements, err := svc.Placements(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range placements {
		log.Print(p.Flow.Name, p.Source)
	}
}

// An instance is served on a control socket, and another process adds a flow through the socket.
func ExampleListenControl() {
	ctx, end := context.WithCancel(context.Background())
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "control", "lb.sock")
	svc, err := plugintest.NewFake(ctx, dataplane.Config{}, nil) // or engine.New
	if err != nil {
		log.Fatal(err)
	}
	defer svc.Close()
	control, err := plugin.ListenControl(path, nil)
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- control.Serve(ctx, svc) }()

	other, err := plugin.Dial(ctx, path)
	if err != nil {
		log.Fatal(err)
	}
	placements, err := other.AddFlows(ctx, flow.MustParse("web", "tcp dport 443"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(placements[0].Flow.Name, placements[0].Source)
	other.Close()
	end()
	fmt.Println(<-served)
	// Output:
	// web sim
	// <nil>
}

// The binary of the plugin that Launch starts.
func ExampleFind() {
	path, err := plugin.Find("")
	if errors.Is(err, plugin.ErrUntrusted) {
		log.Fatal(err) // names the file, and the change that makes it trusted
	}
	log.Print(path, err)
}
