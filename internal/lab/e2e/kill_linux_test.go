package e2e

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/lab/demo"
	"github.com/flowtally/flowtally/plugin"
)

// kill -9 of the plugin, ten times, in the middle of traffic in both modes:
// after the last restart the totals are what was sent, exactly.
func TestKillInTraffic(t *testing.T) {
	needLab(t)
	kills, every := 10, 800*time.Millisecond
	if os.Getenv("FLOWTALLY_STRESS") != "" {
		kills = 1000
	}
	path := binary(t, "flowtally-plugin")
	var killer sync.WaitGroup
	stop, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := 0
	launch := func(ctx context.Context, cfg dataplane.Config) (dataplane.Service, error) {
		c, err := plugin.Launch(ctx, plugin.Options{
			Path: path, Config: cfg, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
			RestartMin: 50 * time.Millisecond, RestartMax: 200 * time.Millisecond,
		})
		if err != nil {
			return nil, err
		}
		killer.Go(func() { done = killOver(stop, t, c, kills, every) })
		return c, nil
	}
	rep, err := demo.Run(t.Context(), demo.Options{For: time.Duration(kills+4) * every, Launch: launch})
	cancel()
	killer.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if done != kills {
		t.Errorf("killed %d times while traffic flowed, want %d", done, kills)
	}
	var packets uint64
	for _, c := range rep.Flows {
		if !c.Exact() {
			t.Errorf("%s: sent %d packets %d bytes, counted %d packets %d bytes", c.Name, c.SentPackets, c.SentBytes, c.Packets, c.Bytes)
		}
		packets += c.SentPackets
	}
	t.Logf("%d packets over %d flows, %d kills", packets, len(rep.Flows), done)
}

// killOver kills the plugin again and again, each time a new process, and
// returns how often it did.
func killOver(ctx context.Context, t *testing.T, c *plugin.Client, kills int, every time.Duration) int {
	last := 0
	for n := 0; n < kills; n++ {
		select {
		case <-ctx.Done():
			return n
		case <-time.After(every):
		}
		pid, ok := nextPID(ctx, c, last)
		if !ok {
			return n
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Errorf("killing the plugin, process %d: %v", pid, err)
			return n
		}
		last = pid
	}
	return kills
}

// nextPID waits for a plugin process other than last.
func nextPID(ctx context.Context, c *plugin.Client, last int) (int, bool) {
	for ctx.Err() == nil {
		if info, err := c.Info(ctx); err == nil && info.PID != last {
			return info.PID, true
		}
		time.Sleep(5 * time.Millisecond)
	}
	return 0, false
}
