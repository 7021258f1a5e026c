package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/plugin"
)

// kill ends the plugin's process as nothing in it can notice, and returns when
// the client can have seen it.
func kill(t testing.TB, c *plugin.Client, sig syscall.Signal) {
	t.Helper()
	exited := c.ChildExited()
	if err := syscall.Kill(pid(t, c), sig); err != nil {
		t.Fatal(err)
	}
	<-exited
}

func restarted(t testing.TB, c *plugin.Client, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("restart %d", n), func() bool { return c.Restarts() >= n })
}

// inOrder lists the flows in the order in which the instance got them: a Fake numbers its counters so.
func inOrder(t testing.TB, c *plugin.Client) []string {
	t.Helper()
	placed, err := c.Placements(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(placed, func(a, b dataplane.Placement) int { return int(a.Counter.Index) - int(b.Counter.Index) })
	var out []string
	for _, p := range placed {
		out = append(out, p.Flow.Name)
	}
	return out
}

func wantOrder(t testing.TB, c *plugin.Client, want ...string) {
	t.Helper()
	if got := inOrder(t, c); !slices.Equal(got, want) {
		t.Errorf("flows are %q, want %q", got, want)
	}
}

func TestKilledPluginComesBack(t *testing.T) {
	opts := options(t, "fake")
	opts.RestartMin = 500 * time.Millisecond // long enough to look around meanwhile
	opts.Config.Flows = []flow.Flow{{Name: "zeta"}, {Name: "gone"}, {Name: "alpha"}}
	c := launch(t, opts)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	events, err := c.Events(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.AddFlows(ctx, flow.Flow{Name: "mid", Priority: 3}, flow.Flow{Name: "also-gone"}); err != nil {
		t.Fatal(err)
	}
	if err := c.RemoveFlows(ctx, "gone", "also-gone"); err != nil {
		t.Fatal(err)
	}
	before, err := c.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}

	kill(t, c, syscall.SIGKILL)
	eventually(t, "the client to notice", func() bool {
		down, err := c.Conditions(ctx)
		return err == nil && len(down) == 1 && down[0].Code == plugin.CodeRestarting
	})
	down, _ := c.Conditions(ctx)
	if d := down[0]; d.Severity != dataplane.High || d.Since.IsZero() || d.Fix == "" || !strings.Contains(d.Text, "signal: killed") {
		t.Errorf("condition is %+v", d)
	}
	for name, call := range map[string]func() error{
		"AddFlows":    func() error { _, err := c.AddFlows(ctx, flow.Flow{Name: "late"}); return err },
		"RemoveFlows": func() error { return c.RemoveFlows(ctx, "zeta") },
		"Placements":  func() error { _, err := c.Placements(ctx); return err },
	} {
		if err := call(); !errors.Is(err, dataplane.ErrUnavailable) {
			t.Errorf("%s while the plugin is down: %v", name, err)
		}
	}
	if info, err := c.Info(ctx); err != nil || info.PID != 0 || info.Mirror != before.Mirror {
		t.Errorf("info while the plugin is down is %+v, %v", info, err)
	}
	whileDown, err := c.Events(ctx) // subscribed by the restart
	if err != nil {
		t.Fatal(err)
	}

	restarted(t, c, 1)
	wantOrder(t, c, "zeta", "alpha", "mid")
	after, err := c.Info(ctx)
	if err != nil || after.PID == before.PID || after.PID == 0 {
		t.Errorf("info after the restart is %+v, %v", after, err)
	}
	if now, err := c.Conditions(ctx); err != nil || len(now) != 0 {
		t.Errorf("conditions after the restart: %+v, %v", now, err)
	}
	if _, err := c.AddFlows(ctx, flow.Flow{Name: "new"}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"flow-added mid", "flow-added also-gone", "flow-removed gone", "flow-removed also-gone",
		"condition-raised plugin", "plugin-restarted plugin", "condition-gone plugin", "flow-added new",
	}
	wantEvents(t, ctx, events, want)
	wantEvents(t, ctx, whileDown, want[5:])
}

func wantEvents(t testing.TB, ctx context.Context, events <-chan dataplane.Event, want []string) {
	t.Helper()
	var got []string
	for len(got) < len(want) {
		select {
		case ev, ok := <-events:
			if !ok {
				t.Fatalf("the stream ended after %q", got)
			}
			if ev.Lost != 0 {
				t.Errorf("lost %d before %+v", ev.Lost, ev)
			}
			got = append(got, string(ev.Kind)+" "+ev.Object)
		case <-ctx.Done():
			t.Fatalf("events are %q, want %q", got, want)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("events are %q, want %q", got, want)
	}
}

// A change that was under way when the plugin died is reported as unavailable
// and did not happen.
func TestKilledDuringChange(t *testing.T) {
	c := launch(t, options(t, "slow"))
	added := make(chan error, 1)
	go func() {
		_, err := c.AddFlows(context.Background(), flow.Flow{Name: "stuck"})
		added <- err
	}()
	queued := make(chan error, 1)
	time.Sleep(100 * time.Millisecond)
	go func() { queued <- c.RemoveFlows(context.Background(), "any") }() // waits behind it
	time.Sleep(100 * time.Millisecond)
	kill(t, c, syscall.SIGKILL)
	for _, ch := range []chan error{added, queued} {
		select {
		case err := <-ch:
			if !errors.Is(err, dataplane.ErrUnavailable) {
				t.Errorf("the call under way: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the call under way hangs")
		}
	}
	restarted(t, c, 1)
	wantOrder(t, c)
}

// A caller that stops waiting does not undo the change, and a restart keeps it.
func TestImpatientCaller(t *testing.T) {
	c := launch(t, options(t, "slow"))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.AddFlows(ctx, flow.Flow{Name: "slow-one"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the impatient caller: %v", err)
	}
	if _, err := c.AddFlows(t.Context(), flow.Flow{Name: "next"}); err != nil {
		t.Fatal(err)
	}
	kill(t, c, syscall.SIGKILL)
	restarted(t, c, 1)
	wantOrder(t, c, "slow-one", "next")
}

func TestKilledTenTimes(t *testing.T) {
	before := runtime.NumGoroutine()
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	opts := options(t, "fake")
	opts.RestartMin, opts.RestartMax = 10*time.Millisecond, 20*time.Millisecond
	opts.Logger = nil
	c := launch(t, opts)
	var want []string
	for i := range 10 {
		name := fmt.Sprintf("f%d", i)
		if _, err := c.AddFlows(t.Context(), flow.Flow{Name: name}); err != nil {
			t.Fatal(err)
		}
		want = append(want, name)
		kill(t, c, syscall.SIGKILL)
		restarted(t, c, i+1)
		wantOrder(t, c, want...)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before+2 })
	if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
		t.Errorf("left in the temporary directory: %v, %v", left, err)
	}
}

// SIGTERM from a service manager, or a hand, ends the plugin in order.
func TestSignalsCloseTheInstance(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			opts, marker := marked(t, "fake")
			c := launch(t, opts)
			kill(t, c, sig)
			eventually(t, "the instance to be closed", func() bool { return slices.Contains(lines(t, marker), "close") })
			restarted(t, c, 1)
			if down := lines(t, marker); down[0] != "start_0" || down[1] != "close" {
				t.Errorf("what happened is %q", down)
			}
		})
	}
}

func marked(t testing.TB, role string) (plugin.Options, string) {
	t.Helper()
	opts := options(t, role)
	marker := filepath.Join(t.TempDir(), "marker")
	opts.Env = append(opts.Env, markerEnv+"="+marker)
	return opts, marker
}

func lines(t testing.TB, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Fields(strings.ReplaceAll(string(b), "start ", "start_"))
}

// A plugin that stands still is killed and replaced.
func TestWatchdog(t *testing.T) {
	opts := options(t, "fake")
	opts.Watchdog = 500 * time.Millisecond
	opts.Config.Flows = []flow.Flow{{Name: "a"}}
	c := launch(t, opts)
	time.Sleep(time.Second) // it must not bite a plugin that answers
	if n := c.Restarts(); n != 0 {
		t.Fatalf("%d restarts of a plugin that answers", n)
	}
	if err := syscall.Kill(pid(t, c), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	restarted(t, c, 1)
	wantOrder(t, c, "a")
}

// What a dead plugin left attached is removed by Close, unless it is to stay.
func TestCloseWhileDown(t *testing.T) {
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprintf("keep pins %v", keep), func(t *testing.T) {
			opts, marker := marked(t, "fake")
			opts.RestartMin, opts.RestartMax = time.Hour, time.Hour
			opts.Config.XDP.KeepPins = keep
			c := launch(t, opts)
			if _, err := c.AddFlows(t.Context(), flow.Flow{Name: "a"}); err != nil {
				t.Fatal(err)
			}
			kill(t, c, syscall.SIGKILL)
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			want := []string{"start_0", "start_1", "close"}
			if keep {
				want = want[:1]
			}
			got := lines(t, marker)
			if len(got) > len(want) { // Serve closes once more on its way out
				got = got[:len(want)]
			}
			if !slices.Equal(got, want) {
				t.Errorf("what happened is %q, want %q", got, want)
			}
		})
	}
}

func TestCloseOfOneThatNeverCloses(t *testing.T) {
	opts := options(t, "never-closes")
	opts.CloseTimeout = 500 * time.Millisecond
	c := launch(t, opts)
	exited := c.ChildExited()
	start := time.Now()
	if err := c.Close(); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "did not close within") {
		t.Errorf("error is %v", err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("closing took %v", took)
	}
	select {
	case <-exited:
	default:
		t.Error("the process is still there")
	}
	if err := c.RemoveFlows(t.Context(), "x"); !errors.Is(err, dataplane.ErrClosed) {
		t.Errorf("a call after Close: %v", err)
	}
}

// A binary that is replaced by a broken one while it runs: the supervisor goes on trying, says
// so, and takes the next one that works.
func TestRestartFailsForAWhile(t *testing.T) {
	opts := options(t, "fake")
	opts.RestartMin, opts.RestartMax = 20*time.Millisecond, 50*time.Millisecond
	opts.Logger = nil
	link := filepath.Join(t.TempDir(), "plugin")
	if err := os.Symlink(opts.Path, link); err != nil {
		t.Fatal(err)
	}
	self := opts.Path
	opts.Path = link
	c := launch(t, opts)
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	kill(t, c, syscall.SIGKILL)
	eventually(t, "the condition to tell of failed attempts", func() bool {
		down, err := c.Conditions(t.Context())
		return err == nil && len(down) == 1 && strings.Contains(down[0].Text, "does not start: attempt 3") && strings.Contains(down[0].Text, link)
	})
	if err := os.Symlink(self, link); err != nil {
		t.Fatal(err)
	}
	restarted(t, c, 1)
	wantOrder(t, c)
}

// Close at any moment of a restart leaves no process and no goroutine.
func TestCloseDuringRestart(t *testing.T) {
	before := runtime.NumGoroutine()
	for i := range 8 {
		opts := options(t, "fake")
		opts.RestartMin, opts.RestartMax = time.Millisecond, time.Millisecond
		opts.Logger = nil
		c := launch(t, opts)
		kill(t, c, syscall.SIGKILL)
		time.Sleep(time.Duration(i) * 7 * time.Millisecond)
		var closers sync.WaitGroup
		for range 3 {
			closers.Go(func() {
				if err := c.Close(); err != nil {
					t.Errorf("closing after %d ms: %v", i*7, err)
				}
			})
		}
		closers.Wait()
		if _, err := c.Placements(t.Context()); !errors.Is(err, dataplane.ErrClosed) {
			t.Errorf("a call after Close: %v", err)
		}
		if _, err := c.Events(t.Context()); !errors.Is(err, dataplane.ErrClosed) {
			t.Errorf("events after Close: %v", err)
		}
	}
	eventually(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before+2 })
}

// Calls from many goroutines while the plugin is killed over and over: each
// change either succeeded and is there at the end, or failed and is not.
func TestChangesUnderKills(t *testing.T) {
	opts := options(t, "fake")
	opts.RestartMin, opts.RestartMax = time.Millisecond, 5*time.Millisecond
	opts.Logger = nil
	c := launch(t, opts)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var mu sync.Mutex
	want := map[string]bool{}
	var failed int
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				name := fmt.Sprintf("g%d-%d", g, i)
				_, err := c.AddFlows(context.Background(), flow.Flow{Name: name})
				if err == nil && i%3 == 0 {
					if rerr := c.RemoveFlows(context.Background(), name); rerr == nil {
						continue
					} else if !errors.Is(rerr, dataplane.ErrUnavailable) {
						t.Errorf("removing: %v", rerr)
					}
				}
				mu.Lock()
				if err == nil {
					want[name] = true
				} else {
					failed++
				}
				mu.Unlock()
				if err != nil && !errors.Is(err, dataplane.ErrUnavailable) {
					t.Errorf("adding: %v", err)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	kills := 0
	for ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
		n := c.Restarts()
		if p := pid(t, c); p != 0 && syscall.Kill(p, syscall.SIGKILL) == nil {
			kills++
			restarted(t, c, n+1)
		}
	}
	wg.Wait()
	eventually(t, "the plugin to be there", func() bool { _, err := c.Placements(context.Background()); return err == nil })
	got := inOrder(t, c)
	for _, name := range got {
		if !want[name] {
			t.Errorf("%s is there although adding it failed", name)
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("%s is gone although adding it succeeded", name)
	}
	t.Logf("%d kills, %d flows, %d changes refused meanwhile", kills, len(got), failed)
	if kills < 3 || len(got) < 10 || failed == 0 {
		t.Error("that was too little to tell")
	}
}
