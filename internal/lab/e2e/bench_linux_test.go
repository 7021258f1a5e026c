package e2e

import (
	"log/slog"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/demo"
	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/plugin"
)

// eth addresses frames to a MAC that no interface has, so that the stack behind XDP ignores them.
var eth = frame.Eth{Dst: [6]byte{2, 0, 0, 0, 0, 1}, Src: [6]byte{2, 0, 0, 0, 0, 2}}

// patience is the longest wait for an expected state, on a machine that other processes use too.
const patience = time.Minute

// bench is a plugin that counts natively on the near end of a veth pair, until
// the test ends.
type bench struct {
	client  *plugin.Client
	options plugin.Options // of the client
	info    dataplane.Info
	far     *lab.End
	killed  bool // by the test, for good: the plugin's attachments cannot be removed in order
}

// newBench launches the plugin; after a crash it is restarted after pause.
func newBench(t *testing.T, pause time.Duration, flows ...flow.Flow) *bench {
	t.Helper()
	return newBenchOf(t, pause, func(string) (dataplane.Config, []string) {
		return dataplane.Config{Backend: "xdp", Flows: flows}, nil
	})
}

// newBenchOf is newBench with a configuration of the near end by configure, except instance and
// interfaces, and with variables that it adds to the plugin's environment.
func newBenchOf(t *testing.T, pause time.Duration, configure func(near string) (dataplane.Config, []string)) *bench {
	t.Helper()
	b := new(bench)
	closed := func(what string, close func() error) {
		t.Cleanup(func() {
			if err := close(); err != nil && !b.killed {
				t.Errorf("closing %s: %v", what, err)
			}
		})
	}
	near, err := lab.CurrentNetns()
	if err != nil {
		t.Fatal(err)
	}
	closed("the near namespace", near.Close)
	far, err := lab.NewNetns("")
	if err != nil {
		t.Fatal(err)
	}
	closed("the far namespace", far.Close)
	pair, err := lab.NewPair(near, far, lab.Unique("e2e"), lab.Unique("far"), lab.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	closed("the pair", pair.Close)
	cfg, env := configure(pair.A.Name)
	cfg.Instance, cfg.Interfaces = lab.Unique("e2e-"), []dataplane.Interface{{Name: pair.A.Name, Mode: "native"}}
	b.options = plugin.Options{
		Path: binary(t, "flowtally-plugin"), Config: cfg, Env: env, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		RestartMin: pause, RestartMax: pause, StartTimeout: patience,
	}
	c, err := plugin.Launch(t.Context(), b.options)
	if err != nil {
		t.Fatal(err)
	}
	info, err := c.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // what a plugin that was killed leaves
		if err := demo.Sweep(cfg.Instance); err != nil {
			t.Error(err)
		}
	})
	closed("the plugin", c.Close)
	b.client, b.info, b.far = c, info, pair.B
	return b
}

// match parses the text form.
func match(t *testing.T, text string) flow.Match {
	t.Helper()
	m, err := flow.ParseMatch(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
