package configs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The unit runs the command that exists, keeps the capabilities that the
// programs need, and holds no setting that systemd does not know.
func TestSystemdUnit(t *testing.T) {
	data, err := os.ReadFile("systemd/flowtally.service")
	if err != nil {
		t.Fatal(err)
	}
	const run = "ExecStart=/usr/local/bin/flowtally run --config /etc/flowtally.yaml\n"
	for _, want := range []string{run, "Type=notify\n", "\nCapabilityBoundingSet=CAP_BPF CAP_NET_ADMIN CAP_PERFMON\n"} {
		if strings.Count(string(data), want) != 1 {
			t.Errorf("the unit does not hold %q once", want)
		}
	}
	dropIn, err := os.ReadFile("systemd/rdma.conf")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(dropIn), "\nCapabilityBoundingSet=CAP_NET_RAW\n") {
		t.Error("the drop-in for RDMA grants no CAP_NET_RAW")
	}
	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("systemd-analyze is not here: the names of the settings are not checked")
		return
	}
	// It wants to find the program.
	unit := filepath.Join(t.TempDir(), "flowtally.service")
	text := strings.Replace(string(data), run, "ExecStart=/bin/true\n", 1) + string(dropIn)
	if err := os.WriteFile(unit, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(verify, "verify", "--man=no", "--recursive-errors=no", unit).CombinedOutput()
	if err != nil || strings.Contains(string(out), "flowtally.service") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
