package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each mask has single bits far from one another, at more places than a tree can cut. So the trees cannot tell the
// flows apart.
func TestCheckRefusesMoreMatchingFlowsThanProgramsCompare(t *testing.T) {
	var b strings.Builder
	b.WriteString("interfaces: [lo]\nflows:\n")
	mask := strings.TrimSuffix(strings.Repeat("1010:", 8), ":")
	for i := range 8500 {
		fmt.Fprintf(&b, "- {name: f%d, match: \"ipv6 src ::/%s dst ::/%s tcp sport %d-%d dport 1-65534\"}\n", i, mask, mask, 1+i%100, 65534-i/100)
	}
	path := filepath.Join(t.TempDir(), "dense.yaml")
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	code, out, talk := run(t, "check", "--config", path)
	if code != exitUsage || out != "" || !strings.Contains(talk, "too many rules match one packet") || !strings.Contains(talk, "\n  try: flowtally check --config FILE # names flows") ||
		strings.Contains(talk, "max_flows") {
		t.Errorf("code %d, output %q, error %q", code, out, talk)
	}
	t.Log(talk)
}
