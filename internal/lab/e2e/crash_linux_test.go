package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/plugin"
)

// crashing is a bench whose process dies in libmlx5 from call number from on, where flows are made.
func crashing(t *testing.T, from int, flows []flow.Flow) (*bench, dataplane.Config, []string) {
	t.Helper()
	preload := preloaded(t)
	var cfg dataplane.Config
	var env []string
	b := newBenchOf(t, time.Millisecond, func(near string) (dataplane.Config, []string) {
		cfg = dataplane.Config{Backend: "auto", Flows: flows}
		env = append(ibvtest.Env{
			Devices: []ibvtest.Device{{Name: "mlx5_0", Netdev: near}},
			Fail:    []ibvtest.Fault{{Verb: "CREATE_FLOW", Errno: "ABORT", From: from}},
		}.Environ(), preload...)
		cfg.Interfaces = []dataplane.Interface{{Name: near}}
		return cfg, env
	})
	return b, cfg, env
}

// countsInXDP sends, and looks at every flow: XDP counts it, and rdma's reason is there.
func countsInXDP(t *testing.T, b *bench, flows int, reason string) {
	t.Helper()
	placed, err := b.client.Placements(t.Context())
	if err != nil || len(placed) != flows {
		t.Fatalf("%d placements, want %d: %v", len(placed), flows, err)
	}
	for _, p := range placed {
		if p.Source.Backend != "xdp" || len(p.Rejected) != 1 || !strings.Contains(p.Rejected[0].Reason, reason) {
			t.Errorf("placed %+v; want xdp, and rdma's reason %q", p, reason)
		}
	}
	until(t, func() error { // the plugin has been started anew, and looks at its conditions a moment later
		conditions, err := b.client.Conditions(t.Context())
		if err != nil || len(conditions) != 1 || conditions[0].Code != "rdma-crash" || conditions[0].Object != "mlx5_0" || !strings.Contains(conditions[0].Text, reason) {
			return fmt.Errorf("conditions %+v, %v", conditions, err)
		}
		return nil
	})
	s := dns(t, b, 20_000)
	if err := s.Run(t.Context(), 2000); err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := final(t, b, "dns"), s.Sent()[0]; got != want {
		t.Errorf("counted %+v, sent %+v", got, want)
	}
}

func numbered(t *testing.T, n int) (flows []flow.Flow) {
	for i := range n {
		flows = append(flows, flow.Flow{Name: fmt.Sprint("flow", i), Match: match(t, fmt.Sprintf("udp dport %d", 5000+i))})
	}
	return append(flows, flow.Flow{Name: "dns", Match: match(t, "ipv4 udp dport 53")})
}

// A library that ends its process at the first flow ends the process that tries it out: the plugin's
// lives, XDP counts, and `flows list` and `doctor` say why.
func TestALibraryThatKillsItsTrialLeavesXDPCounting(t *testing.T) {
	needLab(t)
	need.RDMACore(t)
	need.Tool(t, "gcc")
	b, cfg, env := crashing(t, 1, numbered(t, 3))
	if b.client.Restarts() != 0 {
		t.Errorf("the plugin was restarted %d times", b.client.Restarts())
	}
	countsInXDP(t, b, 4, "in mlx5dv_create_flow")

	program, socket := binary(t, "flowtally"), filepath.Join(t.TempDir(), "s")
	control, err := plugin.ListenControl(socket, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- control.Serve(ctx, b.client) }()
	list := exec.Command(program, "flows", "list", "--socket", socket)
	doctor := exec.Command(program, "doctor", cfg.Interfaces[0].Name, "-c", yaml(t, cfg))
	doctor.Env = append(doctor.Environ(), env...)
	for _, cmd := range []*exec.Cmd{list, doctor} {
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "ended (exit status 2) in mlx5dv_create_flow") {
			t.Errorf("%v: %v\n%s", cmd.Args[1:], err, out)
		}
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// A library that passes its trial and kills the plugin later: the plugin that died twice in one verb of
// a device is started without the device. Of configured flows it dies at its start, of others while it runs.
func TestAPluginThatDiesTwiceInAVerbIsStartedWithoutTheDevice(t *testing.T) {
	needLab(t)
	need.RDMACore(t)
	need.Tool(t, "gcc")
	// A process makes up to ten flows that match nothing before the first one of its own.
	const from = 12
	const reason = "the plugin ended 2 times in mlx5dv_create_flow"
	t.Run("at its start", func(t *testing.T) {
		flows := numbered(t, from)
		b, _, _ := crashing(t, from, flows)
		countsInXDP(t, b, len(flows), reason)
	})
	t.Run("while it runs", func(t *testing.T) {
		flows := numbered(t, from)
		first := flows[:1]
		b, _, _ := crashing(t, from, first)
		b.awaitSource(t, flows[0].Name, "rdma:mlx5_0/devx")
		until(t, func() error {
			_, err := b.client.AddFlows(t.Context(), flows[1:]...)
			return err
		})
		if n := b.client.Restarts(); n != 2 {
			t.Errorf("%d restarts, want 2", n)
		}
		countsInXDP(t, b, len(flows), reason)
	})
}

// until repeats calls that fail while the plugin is away.
func until(t *testing.T, do func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err = do(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// yaml writes the part of a configuration that doctor needs.
func yaml(t *testing.T, cfg dataplane.Config) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	text := fmt.Sprintf("interfaces: [%s]\n", cfg.Interfaces[0].Name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
