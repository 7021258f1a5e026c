package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/plugin"
	"github.com/flowtally/flowtally/plugin/plugintest"
)

// The contract holds over the whole way: the wire, the engine, BPF tables in
// the kernel, on both hooks of a real interface.
func TestXDPInItsProcessConforms(t *testing.T) {
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
		var c *plugin.Client
		err := ns.Do(func() error { // what is started here runs in there
			c, err = plugin.Launch(t.Context(), plugin.Options{
				Path: self, Env: []string{roleEnv + "=plugin"},
				Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
				Config: dataplane.Config{
					Instance: name, Backend: "xdp", Interfaces: []dataplane.Interface{{Name: "a0"}},
					Mirror: dataplane.MirrorConfig{Path: filepath.Join(t.TempDir(), name+".mirror")},
					XDP:    dataplane.XDPConfig{PinDir: pins, MaxFlows: 4096},
				},
			})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return c
	})
}
