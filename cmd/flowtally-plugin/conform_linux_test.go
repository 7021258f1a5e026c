package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/plugintest"
	"github.com/flowtally/flowtally/plugin"
)

// This runs the contract through every layer: the wire, the engine, and BPF tables in the kernel, on both hooks of a
// real interface.
func TestXDPInItsProcessConforms(t *testing.T) {
	conforms(t, dataplane.Config{Backend: "xdp"})
}

// An RDMA device counts the flows that it can, and XDP counts the rest.
func TestRDMAInItsProcessConforms(t *testing.T) {
	uverbs.Need(t)
	env := ibvtest.Env{Devices: []ibvtest.Device{{Name: "mlx5_0", Netdev: "a0"}}, Statistics: filepath.Join(t.TempDir(), "statistics")}
	conforms(t, dataplane.Config{Backend: "auto"}, env.Environ()...)

	called, err := ibvtest.ReadStatistics(env.Statistics)
	if err != nil || called["QUERY_FLOW_COUNTER"] == 0 {
		t.Errorf("the device counted nothing: %v, %v", called, err)
	}
}

// conforms runs the suite over plugins that count on a0, one end of a veth pair in a namespace of its own.
func conforms(t *testing.T, cfg dataplane.Config, env ...string) {
	need.Netns(t)
	need.TCX(t)
	bpffs := need.BPFFS(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ns, err := lab.NewNetns("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	pair, err := lab.NewPair(ns, ns, "a0", "b0", lab.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pair.Close() })

	plugintest.Conformance(t, func() dataplane.Service {
		name := fmt.Sprintf("x%d-%d", os.Getpid(), instances.Add(1))
		pins := filepath.Join(bpffs, lab.Unique("flowtally-plugin-test-"))
		t.Cleanup(func() { os.RemoveAll(pins) })
		cfg := cfg
		cfg.Instance, cfg.Interfaces = name, []dataplane.Interface{{Name: "a0"}}
		cfg.Mirror.Path = filepath.Join(t.TempDir(), name+".mirror")
		cfg.XDP = dataplane.XDPConfig{PinDir: pins, MaxFlows: 4096}
		var c *plugin.Client
		err := ns.Do(func() error { // child processes run in the namespace
			c, err = plugin.Launch(t.Context(), plugin.Options{
				Path: self, Env: append([]string{roleEnv + "=plugin"}, env...), Config: cfg,
				Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
			})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return c
	})
}
