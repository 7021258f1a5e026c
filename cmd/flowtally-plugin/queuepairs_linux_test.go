package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/plugintest"
	"github.com/flowtally/flowtally/plugin"
)

// This runs the contract of queue pairs through every layer and for each source of counts: the wire, the engine, and
// the verbs of a software device.
func TestQueuePairsInTheirProcessConform(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		mode string
		rdma func() dataplane.RDMAConfig
	}{
		{"comp_cntr+external", func() dataplane.RDMAConfig { return withCompletionCounters(t) }},
		{"cq_ring", func() dataplane.RDMAConfig { return dataplane.RDMAConfig{} }},
		{"poll_cq", func() dataplane.RDMAConfig { return dataplane.RDMAConfig{MLX5: "/nonexistent/libmlx5.so.1"} }},
	} {
		t.Run(c.mode, func(t *testing.T) {
			uverbs.Need(t)
			rdma := c.rdma()
			env := ibvtest.Env{Devices: []ibvtest.Device{{Name: "mlx5_0", Netdev: "lo"}}}
			plugintest.QueuePairConformance(t, "mlx5_0", 0, func(pairs []dataplane.QueuePair) dataplane.Service {
				name := fmt.Sprintf("q%d-%d", os.Getpid(), instances.Add(1))
				svc, err := plugin.Launch(t.Context(), plugin.Options{
					Path: self, Env: append(env.Environ(), roleEnv+"=plugin"),
					Config: dataplane.Config{
						Instance: name, QueuePairs: pairs, Mirror: dataplane.MirrorConfig{Path: filepath.Join(t.TempDir(), name+".mirror")},
						RDMA: rdma,
					},
					Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
				})
				if err != nil {
					t.Fatal(err)
				}
				states, err := svc.QueuePairs().List(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, q := range states {
					if len(q.Counters) > 0 && q.Source.Modes() != c.mode {
						t.Errorf("%s is counted by %+v, want %s: %+v", q.Name, q.Source, c.mode, q.Rejected)
					}
				}
				return svc
			})
		})
	}
}

// withCompletionCounters names the shim. The host's libraries have completion counters from rdma-core 65 on, and those
// of an EFA alone.
func withCompletionCounters(t *testing.T) dataplane.RDMAConfig {
	t.Helper()
	return software.Shimmed(t)
}
