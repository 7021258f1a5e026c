package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/classbench"
)

// One packet could visit more than xdp.worst_cost allows. The remedies are fewer flows, narrower flows, and a greater
// xdp.worst_cost.
func TestCheckRefusesACostlyConfigurationAndEachRemedyHelps(t *testing.T) {
	rules := classbench.FewBits(400, 7)
	check := func(name string, n, bound int, narrow string) (code int, out, talk string) {
		var b strings.Builder
		fmt.Fprintf(&b, "interfaces: [lo]\nxdp: {worst_cost: %d}\nflows:\n", bound)
		for i, r := range rules[:n] {
			match := fmt.Sprintf("ipv4 src %s/%s dst %s/%s tcp sport %d-%d", dotted(r.Src), dotted(r.SrcMask), dotted(r.Dst), dotted(r.DstMask), r.SrcPort.First, r.SrcPort.Last)
			if narrow != "" {
				match = fmt.Sprintf(narrow, i/256, i%256, r.SrcPort.First, r.SrcPort.Last)
			}
			fmt.Fprintf(&b, "- {name: f%d, match: %q}\n", i, match)
		}
		path := filepath.Join(t.TempDir(), name+".yaml")
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return run(t, "check", "--config", path)
	}
	code, out, talk := check("costly", len(rules), 60, "")
	if code != exitUsage || out != "" || !strings.Contains(talk, "too costly for one packet: a packet (IPv4) could touch ") ||
		!strings.Contains(talk, "and 60 are allowed by xdp.worst_cost: because of the flows f") || !strings.Contains(talk, " more\n  try: flowtally check --config FILE # prints the cost; narrow ") {
		t.Errorf("code %d, output %q, error %q", code, out, talk)
	}
	t.Log(talk)
	for name, c := range map[string]struct {
		n, bound int
		narrow   string
	}{
		"fewer flows":        {20, 60, ""},
		"narrower flows":     {len(rules), 60, "ipv4 src 10.0.%d.%d tcp sport %d-%d"},
		"more allowed":       {len(rules), 16384, ""},
		"the default allows": {len(rules), 0, ""},
	} {
		code, out, talk := check("remedy", c.n, c.bound, c.narrow)
		if code != exitOK || !strings.Contains(out, " ns at worst (") {
			t.Errorf("%s: code %d, output %q, error %q", name, code, out, talk)
		}
	}
}

func dotted(a uint32) string { return fmt.Sprintf("%d.%d.%d.%d", a>>24, a>>16&255, a>>8&255, a&255) }
