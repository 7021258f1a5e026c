//go:build releases

package rdmacore

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/demo"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// TestDemoIsExactOverEachRelease runs the demo over the libmlx5 of each release, by DevX and by verbs: the sent packets
// and bytes, the NIC's and XDP's are equal, flow by flow.
func TestDemoIsExactOverEachRelease(t *testing.T) {
	need.Root(t)
	need.BPF(t)
	bin := filepath.Dir(program(t))
	for _, suite := range Suites() {
		t.Run(suite, func(t *testing.T) {
			r := release(t, suite)
			for _, by := range []struct {
				name  string
				flows int
				modes []string
			}{
				{"devx", 19, []string{"devx"}},
				{"verbs", 11, []string{"dont-trap", "egress", "drop"}},
			} {
				t.Run(by.name, func(t *testing.T) { runDemo(t, r.NewRoot(t), bin, by.name, by.flows, by.modes) })
			}
		})
	}
}

func runDemo(t *testing.T, root *Root, bin, by string, flows int, modes []string) {
	libraries, err := root.Libraries()
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if err := root.Demo(t.Context(), bin, &stdout, &stderr, "--seconds", "1", "--rdma-by", by, "-o", "json"); err != nil {
		t.Fatalf("%v\n%s%s", err, &stdout, &stderr)
	}
	var r demo.Report
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatalf("%v\n%s", err, &stdout)
	}
	if !r.Exact || !r.SoftwareNIC || r.Backend != "rdma" || len(r.Flows) != flows {
		t.Errorf("exact %t, software %t, backend %q, %d flows; want %d", r.Exact, r.SoftwareNIC, r.Backend, len(r.Flows), flows)
	}
	var packets uint64
	seen := make(map[string]bool)
	for _, c := range r.Flows {
		mode, ours := strings.CutPrefix(c.Source, "rdma:mlx5_0/")
		seen[mode] = true
		if !ours || !c.Exact() || c.XDPPackets == nil {
			t.Errorf("%+v", c)
		}
		packets += c.SentPackets
	}
	for _, m := range modes {
		if !seen[m] {
			t.Errorf("no flow was counted by %s: %v", m, seen)
		}
		delete(seen, m)
	}
	if len(seen) > 0 {
		t.Errorf("flows were counted by %v, want %q alone", seen, modes)
	}
	t.Logf("%s, by %s: %d packets over %d flows equal, over\n%s", root, by, packets, len(r.Flows), strings.Join(libraries, "\n"))
}

// TestDemoServedByUverbsdSharesOneModel runs the demo by uverbsd: the plugin and the processes in which it probes the
// device share one model.
func TestDemoServedByUverbsdSharesOneModel(t *testing.T) {
	need.Root(t)
	need.BPF(t)
	bin := filepath.Dir(program(t))
	need.Command(t, "seccomp", filepath.Join(bin, "ibvtest", "uverbsd"), "true")
	root := release(t, Suites()[0]).NewRoot(t)
	root.server = "/uverbsd"
	runDemo(t, root, bin, "devx", 19, []string{"devx"})
}
