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
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/plugin"
)

// kill sends a signal to the plugin and waits until the Client can see its end.
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

// inOrder lists the flows in the order of their addition, by the numbers that a Fake gives to counters.
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

// awaitOutcome waits for the end of the change under way.
func awaitOutcome(t testing.TB, c *plugin.Client) {
	t.Helper()
	if err := c.RemoveFlows(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestKilledPluginComesBackWithItsFlows(t *testing.T) {
	opts := options(t, "fake")
	come := away(t, &opts) // so that there is time to look around meanwhile
	opts.Config.Flows = []flow.Flow{{Name: "zeta"}, {Name: "gone"}, {Name: "alpha"}}
	c := launch(t, opts)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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

	// Read the events of the plugin before the kill: unread ones are lost with it.
	wantEvents(t, ctx, events, []string{"flow-added mid", "flow-added also-gone", "flow-removed gone", "flow-removed also-gone"})

	come(false)
	kill(t, c, syscall.SIGKILL)
	eventually(t, "the client to notice", func() bool {
		down, err := c.Conditions(ctx)
		return err == nil && len(down) == 1 && down[0].Code == dataplane.CodePluginRestarting
	})
	down, _ := c.Conditions(ctx)
	if d := down[0]; d.Severity != dataplane.High || d.Since.IsZero() || !strings.Contains(d.Text, "signal: killed") {
		t.Errorf("condition is %+v", d)
	}
	lab.Step(t, down[0].Fix, "it is started again by itself")
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

	come(true)
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
	want := []string{"condition-raised plugin plugin-restarting", "plugin-restarted plugin", "condition-gone plugin plugin-restarting", "flow-added new"}
	wantEvents(t, ctx, events, want)
	wantEvents(t, ctx, whileDown, want[1:])
}

// away lets the Client start its plugin through a link. The test calls the returned function to remove or restore the link,
// and without it no restart succeeds.
func away(t testing.TB, opts *plugin.Options) (come func(there bool)) {
	t.Helper()
	self := opts.Path
	opts.Path = filepath.Join(t.TempDir(), "plugin")
	opts.RestartMin, opts.RestartMax = 20*time.Millisecond, 50*time.Millisecond
	opts.Logger = nil // it would tell of every attempt
	come = func(there bool) {
		t.Helper()
		do := func() error { return os.Remove(opts.Path) }
		if there {
			do = func() error { return os.Symlink(self, opts.Path) }
		}
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	come(true)
	return come
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
			got = append(got, strings.TrimSpace(string(ev.Kind)+" "+ev.Object+" "+string(ev.Code)))
		case <-ctx.Done():
			t.Fatalf("events are %q, want %q", got, want)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("events are %q, want %q", got, want)
	}
}

// The caller learns ErrUnavailable, and the next plugin does not have the change.
func TestChangeOfAKilledPluginIsUnavailableAndUndone(t *testing.T) {
	opts, marker := marked(t, "slow")
	come := away(t, &opts)
	c := launch(t, opts)
	added := make(chan error, 1)
	go func() {
		_, err := c.AddFlows(context.Background(), flow.Flow{Name: "stuck"})
		added <- err
	}()
	eventually(t, "the change to be under way", func() bool { return slices.Contains(lines(t, marker), "adding_stuck") })
	queued := make(chan error, 1)
	go func() { queued <- c.RemoveFlows(context.Background(), "any") }() // waits behind it, or finds no plugin
	time.Sleep(50 * time.Millisecond)                                    // mostly the former
	come(false)
	kill(t, c, syscall.SIGKILL)
	for _, ch := range []chan error{added, queued} {
		select {
		case err := <-ch:
			if !errors.Is(err, dataplane.ErrUnavailable) {
				t.Errorf("the call under way: %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("the call under way hangs")
		}
	}
	come(true)
	restarted(t, c, 1)
	wantOrder(t, c)
}

// giveUpAdding begins to add a flow, calls amid, cancels the call, and then lets the instance continue.
func giveUpAdding(t *testing.T, c *plugin.Client, marker, name string, amid func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	added := make(chan error, 1)
	go func() {
		_, err := c.AddFlows(ctx, flow.Flow{Name: name})
		added <- err
	}()
	eventually(t, "the change to be under way", func() bool { return slices.Contains(lines(t, marker), "adding_"+name) })
	amid()
	cancel()
	if err := <-added; !errors.Is(err, context.Canceled) {
		t.Fatalf("the impatient caller: %v", err)
	}
	if err := os.WriteFile(marker+".go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// The instance undoes the change of a caller that gave up, and a restart does not bring its flows back. Until then, a list
// of the flows shows those from before the change.
func TestFlowsOfACallerThatGaveUpDoNotStay(t *testing.T) {
	opts, marker := marked(t, "slow")
	c := launch(t, opts)
	giveUpAdding(t, c, marker, "slow-one", func() {
		wantOrder(t, c)
		if _, err := c.Interfaces(t.Context()); err != nil {
			t.Errorf("listing the interfaces amid a change: %v", err)
		}
	})
	awaitOutcome(t, c)
	wantOrder(t, c)
	if _, err := c.AddFlows(t.Context(), flow.Flow{Name: "next"}); err != nil {
		t.Fatal(err)
	}
	kill(t, c, syscall.SIGKILL)
	restarted(t, c, 1)
	wantOrder(t, c, "next")
}

// If the instance has already decided to keep the flow, it stays, and the next plugin has it, too.
func TestFlowKeptDespiteItsCallersLeaveSurvivesARestart(t *testing.T) {
	opts, marker := marked(t, "slow")
	c := launch(t, opts)
	giveUpAdding(t, c, marker, "slow-kept", func() {})
	awaitOutcome(t, c)
	wantOrder(t, c, "slow-kept")
	kill(t, c, syscall.SIGKILL)
	restarted(t, c, 1)
	wantOrder(t, c, "slow-kept")
}

// If the plugin dies while it undoes the change, the next one does not have the flow.
func TestFlowWhoseUndoKillsThePluginIsGoneAfterTheRestart(t *testing.T) {
	opts, marker := marked(t, "slow")
	c := launch(t, opts)
	giveUpAdding(t, c, marker, "slow-deadly", func() {})
	restarted(t, c, 1)
	wantOrder(t, c)
}

// After a crash in SetFlows, the next plugin has all old flows, or all new ones if the call had succeeded. It never has a
// mixture.
func TestPluginKilledInSetFlowsHasAllOldOrAllNewFlows(t *testing.T) {
	opts, marker := marked(t, "slow")
	opts.Config.Flows = []flow.Flow{{Name: "a"}, {Name: "b"}}
	c := launch(t, opts)
	setting := make(chan error, 1)
	go func() {
		_, err := c.SetFlows(context.Background(), []flow.Flow{{Name: "stuck"}, {Name: "b", Priority: 1}}, dataplane.SetOptions{})
		setting <- err
	}()
	eventually(t, "the change to be under way", func() bool { return slices.Contains(lines(t, marker), "setting_stuck") })
	kill(t, c, syscall.SIGKILL)
	if err := <-setting; !errors.Is(err, dataplane.ErrUnavailable) {
		t.Errorf("the call under way: %v", err)
	}
	restarted(t, c, 1)
	wantOrder(t, c, "a", "b")
	if _, err := c.SetFlows(t.Context(), []flow.Flow{{Name: "c"}, {Name: "front"}}, dataplane.SetOptions{Renames: map[string]string{"a": "front"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.SetFlows(t.Context(), []flow.Flow{{Name: "d"}, {Name: "c", Priority: 2}}, dataplane.SetOptions{KeepOthers: true}); err != nil {
		t.Fatal(err)
	}
	kill(t, c, syscall.SIGKILL)
	restarted(t, c, 2)
	wantOrder(t, c, "c", "front", "d")
}

// The caller leaves before the end of a change that then succeeds. The next plugin must have the change.
func TestADecidedChangeIsNotedForARestart(t *testing.T) {
	opts, marker := marked(t, "slow")
	opts.Config.Flows = []flow.Flow{{Name: "old"}}
	c := launch(t, opts)
	ctx, cancel := context.WithCancel(t.Context())
	setting := make(chan error, 1)
	go func() {
		_, err := c.SetFlows(ctx, []flow.Flow{{Name: "decided"}}, dataplane.SetOptions{})
		setting <- err
	}()
	eventually(t, "the change to be under way", func() bool { return slices.Contains(lines(t, marker), "setting_decided") })
	cancel()
	if err := <-setting; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller that left: %v", err)
	}
	if err := os.WriteFile(marker+".go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	awaitOutcome(t, c)
	wantOrder(t, c, "decided")
	kill(t, c, syscall.SIGKILL)
	restarted(t, c, 1)
	wantOrder(t, c, "decided")
}

// KeepAdded must keep the flows of AddFlows, and no others, even after a restart. The new process got all flows in its
// configuration and cannot tell them apart. It also has the changed settings.
func TestAddedFlowsAreKnownOverARestart(t *testing.T) {
	opts, _ := marked(t, "slow")
	opts.Config.Flows = []flow.Flow{{Name: "file1"}, {Name: "file2"}}
	c := launch(t, opts)
	if _, err := c.AddFlows(t.Context(), flow.Flow{Name: "hand1"}, flow.Flow{Name: "hand2"}); err != nil {
		t.Fatal(err)
	}
	set := func(want string, period time.Duration, names ...string) {
		t.Helper()
		var flows []flow.Flow
		for _, name := range names {
			flows = append(flows, flow.Flow{Name: name})
		}
		cfg := dataplane.Config{Backend: "sim", Poll: dataplane.PollConfig{Period: period}, Interfaces: []dataplane.Interface{{Name: "eth*", Optional: true}}}
		for _, dry := range []bool{true, false} {
			if d, err := c.SetFlows(t.Context(), flows, dataplane.SetOptions{KeepAdded: true, Config: &cfg, DryRun: dry}); err != nil || d.String() != want {
				t.Fatalf("dry run %v: %v; difference\n%s", dry, err, d)
			}
		}
	}
	kill(t, c, syscall.SIGKILL)
	restarted(t, c, 1)
	set("~ setting poll.period: 0s -> 5ms\n- file2\n+ file3\n", 5*time.Millisecond, "file3", "file1")
	kill(t, c, syscall.SIGKILL)
	restarted(t, c, 2)
	wantOrder(t, c, "file3", "file1", "hand1", "hand2")
	if list, err := c.Interfaces(t.Context()); err != nil || len(list) != 1 || list[0] != (dataplane.Interface{Name: "eth*", Optional: true}) {
		t.Errorf("interfaces %v, %v", list, err)
	}
	set("- file1\n- file3\n", 5*time.Millisecond, "hand2")
	set("- hand2\n", 5*time.Millisecond)
	kill(t, c, syscall.SIGKILL)
	restarted(t, c, 3)
	wantOrder(t, c, "hand1")
}

// Calls that reserve or release words outlast a restart, and a SetFlows with the original configuration.
func TestReservedWordsSurviveARestart(t *testing.T) {
	opts, _ := marked(t, "slow")
	opts.Config.Words = []string{"file", "gone"}
	c := launch(t, opts)
	if _, err := c.ReserveWords(t.Context(), "call"); err != nil {
		t.Fatal(err)
	}
	if err := c.ReleaseWords(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	for n := range 2 {
		if _, err := c.SetFlows(t.Context(), nil, dataplane.SetOptions{Config: &dataplane.Config{Backend: "sim", Words: opts.Config.Words}}); err != nil {
			t.Fatal(err)
		}
		kill(t, c, syscall.SIGKILL)
		restarted(t, c, n+1)
		list, err := c.ReservedWords(t.Context())
		if err != nil || len(list) != 2 || list[0].Name != "call" || list[1].Name != "file" {
			t.Errorf("restart %d: %v, %v; want call and file", n+1, list, err)
		}
	}
}

func TestTenKillsLeaveNoProcess(t *testing.T) {
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

// A service manager or a user may send SIGTERM to the plugin itself.
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
