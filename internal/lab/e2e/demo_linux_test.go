package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/lab/demo"
	"github.com/flowtally/flowtally/plugin"
)

// What `make demo` shows: at least a million packets over at least 12 flows,
// natively and generically, sent equals counted, within 45 s.
func TestDemo(t *testing.T) {
	needLab(t)
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(binary(t, "flowtally"), "demo", "--seconds", "5", "-o", "json")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	start := time.Now()
	err := cmd.Run()
	took := time.Since(start)
	if err != nil {
		t.Fatalf("demo: %v\n%s%s", err, stdout.String(), stderr.String())
	}
	if took > 45*time.Second {
		t.Errorf("took %v", took)
	}
	var r demo.Report
	d := json.NewDecoder(&stdout)
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatal(err)
	}
	if r.Schema != 1 || !r.Exact {
		t.Errorf("schema %d, exact %t", r.Schema, r.Exact)
	}
	var packets uint64
	flows := map[string]int{}
	for _, c := range r.Flows {
		if !c.Exact() {
			t.Errorf("%+v", c)
		}
		packets += c.SentPackets
		mode, _, _ := strings.Cut(c.Name, "/")
		flows[mode]++
	}
	if packets < 1_000_000 || flows["native"] < 12 || flows["generic"] < 12 {
		t.Errorf("%d packets over %v flows", packets, flows)
	}
	t.Logf("%d packets in %.1f s, flows %v", packets, took.Seconds(), flows)
}

// A flow that counts something else than what is sent for it is found, and no
// other is.
func TestDemoSeesADifference(t *testing.T) {
	needLab(t)
	const victim = "native/dns4-clients"
	path := binary(t, "flowtally-plugin")
	rep, err := demo.Run(t.Context(), demo.Options{
		For: time.Second, Mode: demo.Native,
		Launch: func(ctx context.Context, cfg dataplane.Config, _ []string) (dataplane.Service, error) {
			for i := range cfg.Flows {
				if cfg.Flows[i].Name == victim {
					cfg.Flows[i].Match = match(t, "ipv4 src 10.0.0.0/9 dst 192.0.2.10 udp dport 53") // in place of /8
				}
			}
			return plugin.Launch(ctx, plugin.Options{Path: path, Config: cfg})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if rep.Exact {
		t.Error("the report is exact")
	}
	for _, c := range rep.Flows {
		if c.Exact() == (c.Name == victim) || c.Name == victim && c.Packets >= c.SentPackets {
			t.Errorf("exact %t: %+v", c.Exact(), c)
		}
	}
}

// Without privileges the demo says so, and what to do.
func TestDemoWithoutPrivileges(t *testing.T) {
	needLab(t)
	cmd := exec.Command(binary(t, "flowtally"), "demo", "--plugin", binary(t, "flowtally-plugin"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("got %v\n%s", err, out)
	}
	if s := string(out); !strings.Contains(s, "privilege") || !strings.Contains(s, "try: ") {
		t.Errorf("it says neither cause nor next step:\n%s", s)
	}
}
