package fleet

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
)

func TestMain(m *testing.M) {
	isolateErr = lab.Isolate(lab.ForTests)
	code := m.Run()
	os.RemoveAll(built) // "" is nothing
	os.Exit(code)
}

var (
	isolateErr error
	built      string // the directory of the copied programs; "" before they are copied
)

// needFleet gates the tests with real packets.
func needFleet(t *testing.T) {
	t.Helper()
	need.Root(t)
	need.Cap(t, "net_admin", "sys_admin", "bpf")
	need.BPF(t)
	need.BPFFS(t)
	need.Netns(t)
	need.Tool(t, "prometheus")
	if isolateErr != nil {
		t.Fatal(isolateErr)
	}
}

// build puts the programs into a directory of root's, which other users may read.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "flowtally-fleet-")
	if err != nil {
		return "", err
	}
	built = dir
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	syscall.Umask(0o022)
	making := exec.Command("make", "-C", "../../..", "--no-print-directory", "build", "BIN="+dir)
	if bin := os.Getenv("FLOWTALLY_BIN"); bin != "" {
		making = exec.Command("cp", filepath.Join(bin, "flowtally"), filepath.Join(bin, "flowtally-plugin"), dir)
	}
	if out, err := making.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", making.Args, err, out)
	}
	return dir, nil
})

// binary returns the path of one of the project's programs.
func binary(t *testing.T, name string) string {
	t.Helper()
	dir, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}
