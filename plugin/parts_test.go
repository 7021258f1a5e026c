package plugin

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/plugin/internal/child"
	"github.com/flowtally/flowtally/plugin/internal/logwire"
	"github.com/flowtally/flowtally/plugin/internal/queue"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

// Whatever the order of pushes and reads: events arrive in order, each one either arrives or is counted as lost by
// the next that does, and the oldest queued one is dropped first.
func TestQueueDropsTheOldestAndCountsThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		q := queue.New(ctx)
		var pushed, seen uint64 // seen counts the lost ones
		read := func() {
			ev, ok := <-q.Out
			if !ok {
				t.Fatal("the stream ended")
			}
			seen += 1 + ev.Lost
			if want := fmt.Sprint(seen - 1); ev.Object != want {
				t.Fatalf("got event %s, want %s (lost %d)", ev.Object, want, ev.Lost)
			}
		}
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			for range rapid.IntRange(0, 2*queue.Length).Draw(t, "pushes") {
				lost := uint64(rapid.IntRange(0, 1).Draw(t, "lost before")) // by the plugin
				pushed += lost
				q.Push(dataplane.Event{Object: fmt.Sprint(pushed), Lost: lost})
				pushed++
			}
			for range rapid.IntRange(0, 50).Draw(t, "reads") {
				if seen < pushed {
					read()
				}
			}
		}
		q.Close()
		for seen < pushed {
			read()
		}
		if _, open := <-q.Out; open {
			t.Fatal("the stream goes on after its close")
		}
	})
}

// The losses that all flows of a large device declare at once reach a receiver that was busy elsewhere.
func TestQueueHoldsWhatADeviceSaysAtOnce(t *testing.T) {
	q := queue.New(t.Context())
	const flows = 2000
	for range 2 * flows { // it goes, and comes back
		q.Push(dataplane.Event{Uncounted: dataplane.Uncounted{Packets: 1}})
	}
	q.Close()
	var declared uint64
	for ev := range q.Out {
		declared += ev.Uncounted.Packets
	}
	if declared != 2*flows {
		t.Errorf("%d packets were declared lost, and %d told", 2*flows, declared)
	}
}

func TestQueueEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	q := queue.New(ctx)
	for range 10 {
		q.Push(dataplane.Event{})
	}
	cancel()
	for range q.Out { // ends, whatever is queued
	}
	q.Push(dataplane.Event{})
	q.Close()
	q.Close()
}

func TestBackoffDoublesThenStartsOverAfterALongLife(t *testing.T) {
	b := backoff{min: 100 * time.Millisecond, max: 2 * time.Second}
	for i, want := range []time.Duration{100, 200, 400, 800, 1600, 2000, 2000, 2000} {
		want *= time.Millisecond
		if got := b.next(); got > want || got < want/2 {
			t.Errorf("pause %d is %v, want up to %v and at least half", i, got, want)
		}
	}
	b.lived(19 * time.Second) // less than ten pauses
	if got := b.next(); got < time.Second {
		t.Errorf("the pause after a short life is %v", got)
	}
	b.lived(20 * time.Second)
	if got := b.next(); got > 100*time.Millisecond {
		t.Errorf("the pause after a long life is %v", got)
	}
}

// A flow may ask for a device by itself.
func TestRDMAIsAllowedIfTheConfigurationOrAFlowAsksForIt(t *testing.T) {
	flows := func(backends ...string) (flows []*pluginv1.Flow) {
		for _, b := range backends {
			flows = append(flows, &pluginv1.Flow{Backend: b})
		}
		return flows
	}
	for _, test := range []struct {
		cfg  *pluginv1.Config
		want bool
	}{
		{&pluginv1.Config{}, true},
		{&pluginv1.Config{Backend: "auto"}, true},
		{&pluginv1.Config{Backend: "rdma"}, true},
		{&pluginv1.Config{Backend: "xdp", Flows: flows("", "xdp", "sim")}, false},
		{&pluginv1.Config{Backend: "sim", Flows: flows("", "rdma")}, true},
		{&pluginv1.Config{Backend: "xdp", Flows: flows("auto")}, true},
		{&pluginv1.Config{Backend: "xdp", QueuePairs: []*pluginv1.QueuePair{{}}}, true},
	} {
		if got := mayUseRDMA(test.cfg); got != test.want {
			t.Errorf("%v: %v", test.cfg, got)
		}
	}
}

// The variables by which this program knows its own host do not reach its plugin: the plugin would take the other
// host's socket directory, keys and descriptors for its own.
func TestEnvironmentLeavesOutTheVariablesOfAnotherHost(t *testing.T) {
	for _, name := range []string{"PLUGIN_UNIX_SOCKET_DIR", "PLUGIN_CLIENT_CERT", "PLUGIN_PROTOCOL_VERSIONS", child.HostFDEnv, child.VerbsFDEnv, child.ExcludedEnv, logwire.LevelEnv} {
		t.Setenv(name, "of another")
	}
	t.Setenv("FLOWTALLY_TEST_KEPT", "kept")
	env := environment(&Options{Env: []string{"PLUGIN_MIN_PORT=of another", "MORE=kept", "XPLUGIN_A=kept"}, Logger: slog.New(slog.DiscardHandler)})
	kept := 0
	last := map[string]string{} // of several the process gets the last
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		last[name] = value
		if value == "kept" {
			kept++
		}
	}
	for name, value := range last {
		if value == "of another" {
			t.Errorf("the plugin is handed %s", name)
		}
	}
	if kept != 3 {
		t.Errorf("%d of 3 others reach the plugin", kept)
	}
}

func TestPluginStartedByHandSaysWhatToRun(t *testing.T) {
	var out bytes.Buffer
	byHand(&out, "")
	for _, s := range []string{"This binary is a plugin", "`flowtally run`"} {
		if !strings.Contains(out.String(), s) {
			t.Errorf("%q is not in %q", s, out.String())
		}
	}
	if code := Serve(ServeOptions{}); code != 1 {
		t.Errorf("a plugin without a host exits with %d", code)
	}
}
