//go:build releases

package rdmacore

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// program returns the path of flowtally, built with cgo.
func program(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("FLOWTALLY_BIN"); dir != "" {
		return filepath.Join(dir, "flowtally")
	}
	need.Tool(t, "go", "gcc")
	path := filepath.Join(t.TempDir(), "flowtally")
	cmd := exec.Command("go", "build", "-tags", "netgo,osusergo", "-o", path, "./cmd/flowtally")
	cmd.Dir, cmd.Env = filepath.Join("..", "..", ".."), append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building flowtally: %v\n%s", err, out)
	}
	return path
}

// TestDoctorNamesTheDevicesOfEachRelease asks the shipped program about RDMA over the libraries of each release: it
// names the devices that the release's providers list. No check succeeds, because the kernel does not have these
// devices.
func TestDoctorNamesTheDevicesOfEachRelease(t *testing.T) {
	flowtally := program(t)
	for _, suite := range Suites() {
		t.Run(suite, func(t *testing.T) {
			root := release(t, suite).NewRoot(t)
			root.MountProc(t) // doctor probes in processes of its own
			t.Log(root)
			out, err := root.Run(t.Context(), flowtally, nil, "doctor", "-o", "json")
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var report struct {
				Checks []struct{ Backend, Object, Feature, Answer, Reason string }
			}
			if err := json.Unmarshal(out, &report); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			asked := make(map[string]int)
			for _, a := range report.Checks {
				if a.Backend != "rdma" {
					continue
				}
				asked[a.Object]++
				t.Logf("%s: %s: %s: %s", a.Object, a.Feature, a.Answer, a.Reason)
				if a.Answer != "inconclusive" || !strings.Contains(a.Reason, "ibv_open_device") {
					t.Errorf("%s: %s: the result is %s: %s", a.Object, a.Feature, a.Answer, a.Reason)
				}
			}
			if !Listed() {
				return
			}
			for _, d := range Devices() {
				if asked["rdma "+d.Name] < 8 {
					t.Errorf("%s was asked %d questions: %v", d.Name, asked["rdma "+d.Name], asked)
				}
			}
		})
	}
}
