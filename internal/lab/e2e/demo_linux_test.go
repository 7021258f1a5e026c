package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/lab/demo"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/times"
	"github.com/flowtally/flowtally/plugin"
)

// The contract of `make demo`: at least a million packets over at least 12 flows, in native and in
// generic mode, every sent packet counted, within 45 s.
func TestDemoCountsEverySentPacketInBothModes(t *testing.T) {
	needLab(t)
	runDemos(t, 45*time.Second, times.Brief(uint64(1_000_000), 1), func() uint64 {
		r, _ := runDemo(t)
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
		if r.Schema != 1 || !r.Exact || flows["native"] < 12 || flows["generic"] < 12 {
			t.Errorf("schema %d, exact %t, flows %v", r.Schema, r.Exact, flows)
		}
		return packets
	})
}

// A machine without a bpffs, such as a new container, runs the demo too, and has no bpffs
// afterwards.
func TestDemoWithoutBPFFSRunsAndLeavesNone(t *testing.T) {
	needLab(t)
	need.Tool(t, "unshare", "umount")
	script := `umount /sys/fs/bpf && cat /proc/self/mounts >&2 && "$0" demo --seconds 1 && exec cat /proc/self/mounts >&2`
	var stdout, stderr strings.Builder
	cmd := exec.Command("unshare", "-m", "sh", "-c", script, binary(t, "flowtally"))
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil || !strings.Contains(stdout.String(), "every one counted, exactly once") {
		t.Errorf("demo: %v\n%s%s", err, stdout.String(), stderr.String())
	}
	if strings.Contains(stderr.String(), " /sys/fs/bpf ") {
		t.Errorf("a bpffs is mounted:\n%s", stderr.String())
	}
}

// A user's clone is below a home directory that others may not enter, and the plugin is root without
// the capability to do so all the same: the demo that this user starts with sudo works.
func TestDemoOfAUserWithAPrivateHomeWorks(t *testing.T) {
	needLab(t)
	need.RDMACore(t)
	bin := filepath.Dir(binary(t, "flowtally"))
	home := filepath.Join(t.TempDir(), "home")
	const user = "1001:1001"
	script := `mkdir "$1" && cp -r "$0" "$1/bin" && chown -R ` + user + ` "$1" && chmod 0750 "$1"`
	if out, err := exec.Command("sh", "-c", script, bin, home).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, backend := range []string{"xdp", "rdma"} {
		out, err := exec.Command(filepath.Join(home, "bin", "flowtally"), "demo", "--seconds", "1", "--backend", backend).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "every one counted") {
			t.Errorf("demo --backend %s: %v\n%s", backend, err, out)
		}
	}
}

// runDemos runs a demo of 5 s, as make demo does (1 s in the short form), until one sends that many packets within that
// time. Every demo must be exact; the packets sent and the time depend on the load of the machine.
func runDemos(t *testing.T, most time.Duration, least uint64, demo func() (packets uint64)) {
	t.Helper()
	for try := 1; !t.Failed(); try++ {
		start := time.Now()
		packets := demo()
		took := time.Since(start)
		t.Logf("%d packets in %.1f s", packets, took.Seconds())
		if packets >= least && took <= most {
			return
		}
		if try == 10 {
			t.Errorf("none of %d demos sent %d packets within %v", try, least, most)
		}
	}
}

// runDemo runs the command that a user runs, and returns its report and its stderr.
func runDemo(t *testing.T, args ...string) (r demo.Report, said string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(binary(t, "flowtally"), append([]string{"demo", "--seconds", times.Brief("5", "1"), "-o", "json"}, args...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("demo: %v\n%s%s", err, stdout.String(), stderr.String())
	}
	d := json.NewDecoder(&stdout)
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatal(err)
	}
	return r, stderr.String()
}

// A flow that counts other packets than the ones sent for it is reported, and no other flow is.
func TestDemoReportsOnlyTheFlowThatDiffers(t *testing.T) {
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
			return plugin.Launch(ctx, plugin.Options{Path: path, Config: cfg, StartTimeout: patience})
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

// Without privileges the demo reports the missing privilege and the remedy.
func TestDemoWithoutPrivilegesNamesTheRemedy(t *testing.T) {
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
