package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/plugin"
	"github.com/flowtally/flowtally/shm"
)

// The queue pairs of a killed plugin are gone. The next plugin makes them again, and connects the pairs of the
// configuration. Totals keep the completions published before the kill, with one discontinuity.
func TestQueuePairsComeBackWithTheirTotalsAfterAKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "restart.mirror")
	c := launchPair(t, dataplane.Config{Instance: "restart", Mirror: dataplane.MirrorConfig{Path: path}})
	post := func(n int) {
		t.Helper()
		if p, err := c.QueuePairs().Post(t.Context(), "near", dataplane.Send, n); err != nil || p.Completed != uint64(n) {
			t.Fatalf("%d sent as %+v, %v", n, p, err)
		}
	}
	post(100)
	waitFor(t, path, "sent", 100, 0)
	waitFor(t, path, "received", 100, 0)

	events, err := c.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	info, err := c.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(info.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for ev := range events {
		if ev.Kind == dataplane.PluginRestarted {
			break
		}
	}
	pairs, err := c.QueuePairs().List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range pairs {
		if q.State != "RTS" {
			t.Errorf("after the restart %s is in state %s", q.Name, q.State)
		}
	}
	post(50)
	waitFor(t, path, "sent", 150, 1)
	waitFor(t, path, "received", 150, 1)
}

// launchPair starts a plugin that counts near's sends as "sent" and far's receives as "received", connected by a
// software device. The plugin is closed with the test.
func launchPair(t *testing.T, cfg dataplane.Config) *plugin.Client {
	t.Helper()
	uverbs.Need(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg.QueuePairs = []dataplane.QueuePair{
		{Name: "near", Device: "mlx5_0", Connect: "far", Counters: []dataplane.CompletionCounter{{Name: "sent", Operations: []dataplane.Operation{dataplane.Send}}}},
		{Name: "far", Device: "mlx5_0", Counters: []dataplane.CompletionCounter{{Name: "received", Operations: []dataplane.Operation{dataplane.Recv}}}},
	}
	env := ibvtest.Env{Devices: []ibvtest.Device{{Name: "mlx5_0", Netdev: "lo"}}}
	c, err := plugin.Launch(t.Context(), plugin.Options{
		Path: self, Env: append(env.Environ(), roleEnv+"=plugin"), RestartMin: time.Millisecond, Config: cfg,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// waitFor waits until a counter of the mirror at path has exactly so many completions and discontinuities, and no
// errors.
func waitFor(t *testing.T, path, name string, completions, discontinuities uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		r, err := shm.OpenReader(path, shm.ReaderOptions{Owners: []uint32{uint32(os.Geteuid())}})
		if err != nil {
			t.Fatal(err)
		}
		h, err := r.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		v, err := r.Wait(ctx, h, completions)
		e, entryErr := r.Entry(h)
		r.Close()
		if errors.Is(err, shm.ErrNotAlive) && ctx.Err() == nil {
			time.Sleep(time.Millisecond) // of the one that was killed
			continue
		}
		if err != nil || entryErr != nil {
			t.Fatalf("%s: waiting for %d: %+v, %v %v", name, completions, v, err, entryErr)
		}
		if v.Packets != completions || v.Bytes != 0 || e.Continuity.Discontinuities != discontinuities {
			t.Errorf("%s shows %d completions, %d errors, %d discontinuities; want %d, 0, %d",
				name, v.Packets, v.Bytes, e.Continuity.Discontinuities, completions, discontinuities)
		}
		return
	}
}
