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
	libs := software.Get(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		mode    string
		without []string
	}{
		{"comp_cntr+external", nil}, {"cq_ring", []string{"comp_cntr"}}, {"poll_cq", []string{"comp_cntr", "cq_ring"}},
	} {
		t.Run(c.mode, func(t *testing.T) {
			env := ibvtest.Env{Devices: []ibvtest.Device{{Name: "swnic0", Netdev: "lo"}}, Without: c.without}
			plugintest.QueuePairConformance(t, "swnic0", 0, func(pairs []dataplane.QueuePair) dataplane.Service {
				name := fmt.Sprintf("q%d-%d", os.Getpid(), instances.Add(1))
				svc, err := plugin.Launch(t.Context(), plugin.Options{
					Path: self, Env: append(env.Environ(), roleEnv+"=plugin"),
					Config: dataplane.Config{
						Instance: name, QueuePairs: pairs, Mirror: dataplane.MirrorConfig{Path: filepath.Join(t.TempDir(), name+".mirror")},
						RDMA: dataplane.RDMAConfig{Library: libs.Verbs, MLX5: libs.MLX5, EFA: libs.EFA},
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
