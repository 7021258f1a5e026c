package e2e

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/demo"
	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/times"
	"github.com/flowtally/flowtally/plugin"
)

// The contract of `flowtally demo --backend rdma`: over the host's rdma-core and the uverbs kernel, packets and
// bytes of at least 12 flows equal the traffic sent and XDP's counts of the same traffic, flow by
// flow, within 50 s. The report says that the NIC is software.
func TestDemoRDMAEqualsTheTrafficAndXDP(t *testing.T) {
	needLab(t)
	need.RDMACore(t)
	need.Tool(t, "gcc")
	runDemos(t, 50*time.Second, times.Brief(uint64(100_000), 1), func() uint64 {
		r, said := runDemo(t, "--backend", "rdma")
		if !strings.Contains(said, "the RDMA NIC is software") {
			t.Errorf("it does not say that the NIC is software:\n%s", said)
		}
		if r.Schema != 1 || !r.Exact || r.Backend != "rdma" || !r.SoftwareNIC || len(r.Flows) < 12 {
			t.Errorf("schema %d, exact %t, backend %q, software %t, %d flows", r.Schema, r.Exact, r.Backend, r.SoftwareNIC, len(r.Flows))
		}
		var packets uint64
		for _, c := range r.Flows {
			if !c.Exact() || c.XDPPackets == nil || !strings.HasPrefix(c.Source, "rdma:mlx5_0/") {
				t.Errorf("%+v", c)
			}
			packets += c.SentPackets
		}
		return packets
	})
}

// A file of the loader's path that is no library is as good as none.
func TestDemoRDMANamesThePackageThatIsMissing(t *testing.T) {
	needLab(t)
	need.RDMACore(t)
	need.Tool(t, "unshare", "mount")
	for library, packages := range map[string]string{"libibverbs.so.1": "install libibverbs1", "libmlx5.so.1": "install ibverbs-providers"} {
		script := `mount --bind /dev/null "$(/sbin/ldconfig -p | sed -n "s|^.$1 .* => ||p" | head -n1)" && exec "$0" demo --backend rdma --seconds 1`
		out, err := exec.Command("unshare", "-m", "sh", "-c", script, binary(t, "flowtally"), library).CombinedOutput()
		if err == nil || !strings.Contains(string(out), library) || !strings.Contains(string(out), packages) {
			t.Errorf("without %s the demo ends with %v, want the next step %q:\n%s", library, err, packages, out)
		}
	}
}

// preloaded puts the uverbs kernel in software below the RDMA libraries of a program.
func preloaded(t *testing.T) []string {
	t.Helper()
	libs := ibvtest.LibsIn(filepath.Join(filepath.Dir(binary(t, "flowtally-plugin")), "ibvtest"))
	return []string{"LD_PRELOAD=" + libs.Kernel, "FLOWTALLY_IBVTEST_SYSFS=" + t.TempDir()}
}

// When XDP beside counts other packets than the ones sent for a flow, the report names that flow,
// although the software NIC is right, and no other.
func TestDemoRDMAReportsOnlyTheFlowThatDiffers(t *testing.T) {
	needLab(t)
	need.RDMACore(t)
	need.Tool(t, "gcc")
	const victim = "rdma/dns4-clients"
	path := binary(t, "flowtally-plugin")
	rep, err := demo.Run(t.Context(), demo.Options{
		For: time.Second, Backend: "rdma", Env: preloaded(t),
		Launch: func(ctx context.Context, cfg dataplane.Config, env []string) (dataplane.Service, error) {
			for i := range cfg.Flows {
				if cfg.Backend == "xdp" && cfg.Flows[i].Name == victim {
					cfg.Flows[i].Match = match(t, "ipv4 src 10.0.0.0/9 dst 192.0.2.10 udp dport 53") // in place of /8
				}
			}
			return plugin.Launch(ctx, plugin.Options{Path: path, Config: cfg, Env: env, StartTimeout: patience})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if rep.Exact {
		t.Error("the report is exact")
	}
	for _, c := range rep.Flows {
		if c.Exact() == (c.Name == victim) || c.Packets != c.SentPackets || c.Bytes != c.SentBytes {
			t.Errorf("exact %t: %+v, xdp %d packets", c.Exact(), c, *c.XDPPackets)
		}
	}
}

// On a host without libibverbs, doctor names the library, and still reports everything else. The
// host is a directory that holds the program and the libraries to which it is linked.
func TestDoctorNamesAMissingLibibverbsAndReportsTheRest(t *testing.T) {
	needLab(t)
	need.Tool(t, "gcc", "ldd")
	host := t.TempDir()
	program := binary(t, "flowtally")
	out, err := exec.Command("ldd", program).CombinedOutput()
	if err != nil {
		t.Fatalf("ldd: %v\n%s", err, out)
	}
	if strings.Contains(string(out), "ibverbs") || strings.Contains(string(out), "mlx5") {
		t.Errorf("the program is linked to RDMA's libraries:\n%s", out)
	}
	copyInto(t, host, program, "/flowtally")
	for _, word := range strings.Fields(string(out)) {
		if filepath.IsAbs(word) {
			copyInto(t, host, word, word)
		}
	}
	// doctor loads libibverbs in a process of its own, which it starts from /proc/self/exe.
	proc := filepath.Join(host, "proc")
	if err := os.MkdirAll(proc, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("proc", proc, "proc", 0, ""); err != nil {
		t.Fatalf("mounting %s: %v", proc, err)
	}
	defer syscall.Unmount(proc, syscall.MNT_DETACH)
	cmd := exec.Command("/flowtally", "doctor", "-o", "json")
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: host}
	out, err = cmd.Output()
	if err != nil {
		t.Fatalf("doctor: %v\n%s", err, out)
	}
	var j struct {
		Checks []struct{ Object, Feature, Answer, Reason, Fix string }
	}
	if err := json.Unmarshal(out, &j); err != nil {
		t.Fatal(err)
	}
	named, backends := 0, map[string]bool{}
	for _, c := range j.Checks {
		backends[c.Object] = true
		if c.Object == "libibverbs" {
			named++
			if c.Answer != "no" || !strings.Contains(c.Reason, "libibverbs") || c.Fix == "" {
				t.Errorf("%+v", c)
			}
		}
	}
	if named != 1 || !backends["backend xdp"] {
		t.Errorf("libibverbs is named %d times among the answers about %v", named, backends)
	}
}

// copyInto copies a file to the path that it has in another root directory.
func copyInto(t *testing.T, root, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(root, to)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, data, 0o755); err != nil {
		t.Fatal(err)
	}
}

// Without libibverbs, backend auto counts by XDP, exactly, and says why; a flow that
// asks for rdma is refused, and changes nothing.
func TestXDPCountsExactlyWithoutLibibverbs(t *testing.T) {
	needLab(t)
	const frames = 20_000
	b := newBenchOf(t, time.Second, func(string) (dataplane.Config, []string) {
		return dataplane.Config{
			Backend: "auto",
			Flows:   []flow.Flow{{Name: "dns", Match: match(t, "ipv4 udp dport 53")}},
			RDMA:    dataplane.RDMAConfig{Library: "/nonexistent/libibverbs.so.1"},
		}, nil
	})
	_, err := b.client.AddFlows(t.Context(), flow.Flow{Name: "hw", Match: match(t, "ipv4 udp dport 53"), Backend: "rdma"})
	if err == nil || !strings.Contains(err.Error(), "libibverbs") {
		t.Errorf("adding a flow that asks for rdma: %v, want an error that names libibverbs", err)
	}
	placed, err := b.client.Placements(t.Context())
	if err != nil || len(placed) != 1 || placed[0].Source.Backend != "xdp" {
		t.Fatalf("placed %+v, %v", placed, err)
	}
	s := dns(t, b, 200_000)
	if err := s.Run(t.Context(), frames); err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := final(t, b, "dns"), s.Sent()[0]; got != want {
		t.Errorf("counted %+v, sent %+v", got, want)
	}
}

// dns sends questions from the far end.
func dns(t *testing.T, b *bench, rate int) *lab.Sender {
	t.Helper()
	s, err := b.far.NewSender([]lab.Stream{{Name: "dns", Frames: [][]byte{
		frame.Sized(90, eth, frame.IPv4{Src: frame.Addr("10.0.0.1"), Dst: frame.Addr("10.0.0.2")}, frame.UDP{Src: 4000, Dst: 53}),
	}}}, lab.SenderOptions{Rate: rate})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing the sender: %v", err)
		}
	})
	return s
}
