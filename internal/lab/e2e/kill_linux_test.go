package e2e

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/lab/demo"
	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/internal/lab/times"
	"github.com/flowtally/flowtally/plugin"
)

// killRate of each sender leaves the restarts some CPU: at full speed on all of
// them the counts are exact too, but every restart takes seconds.
const killRate = 250_000

// kill -9 of the plugin, ten times, in the middle of traffic in both modes: after the last restart
// the totals equal the packets sent, exactly.
func TestKillsInTrafficLoseNoPacket(t *testing.T) {
	needLab(t)
	kills, limit := times.Brief(10, 3), 5*time.Minute
	if os.Getenv("FLOWTALLY_STRESS") != "" {
		kills, limit = 500, time.Hour
	}
	rng := seed.Rand(t)
	path := binary(t, "flowtally-plugin")
	// Traffic flows until the last restart is through, and a moment longer.
	traffic, enough := context.WithTimeout(t.Context(), limit)
	defer enough()
	var killer sync.WaitGroup
	done := 0
	launch := func(ctx context.Context, cfg dataplane.Config, _ []string) (dataplane.Service, error) {
		c, err := plugin.Launch(ctx, plugin.Options{
			Path: path, Config: cfg, Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
			RestartMin: 50 * time.Millisecond, RestartMax: 200 * time.Millisecond, StartTimeout: patience,
		})
		if err != nil {
			return nil, err
		}
		killer.Go(func() {
			done = killOver(traffic, t, c, kills, rng)
			enough()
		})
		return c, nil
	}
	rep, err := demo.Run(traffic, demo.Options{For: limit, Rate: killRate, Launch: launch})
	enough()
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

// killOver kills the plugin again and again, each time a new process some time
// after it has taken over, and waits for the last one's successor. It returns
// how often it did.
func killOver(ctx context.Context, t *testing.T, c *plugin.Client, kills int, rng *rand.Rand) int {
	last := 0
	for n := range kills {
		pid, ok := nextPID(ctx, c, last)
		if !ok {
			return n
		}
		time.Sleep(time.Duration(rng.Int64N(int64(500 * time.Millisecond))))
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Errorf("killing the plugin, process %d: %v", pid, err)
			return n
		}
		last = pid
	}
	if _, ok := nextPID(ctx, c, last); !ok {
		t.Error("the plugin was not restarted after the last kill")
	}
	time.Sleep(500 * time.Millisecond)
	return kills
}

// nextPID waits for a plugin process other than last. While the plugin is down
// its PID is 0, which to kill would mean this process and its relatives.
func nextPID(ctx context.Context, c *plugin.Client, last int) (int, bool) {
	for ctx.Err() == nil {
		if info, err := c.Info(ctx); err == nil && info.PID > 0 && info.PID != last {
			return info.PID, true
		}
		time.Sleep(5 * time.Millisecond)
	}
	return 0, false
}
