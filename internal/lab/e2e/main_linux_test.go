package e2e

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

// readerEnv makes the test binary a reader of the mirror that it names.
const readerEnv = "FLOWTALLY_E2E_READER"

func TestMain(m *testing.M) {
	if path := os.Getenv(readerEnv); path != "" {
		os.Exit(readerMain(path, os.Args[1:]))
	}
	// Without the privilege the tests run in place, and report the missing privilege.
	isolateErr = lab.Isolate(lab.ForTests)
	code := m.Run()
	os.RemoveAll(built) // "" is nothing
	os.Exit(code)
}

var (
	isolateErr error
	built      string // output of the build; "" when nothing was built
)

// needLab gates every test of the package.
func needLab(t *testing.T) {
	t.Helper()
	need.Root(t)
	need.Cap(t, "net_admin", "sys_admin", "bpf")
	need.BPF(t)
	need.BPFFS(t)
	need.TCX(t)
	need.Netns(t)
	if isolateErr != nil {
		t.Fatal(isolateErr)
	}
}

// build puts the programs into a directory of root's: those in $FLOWTALLY_BIN may be another
// user's, and root runs no plugin that another user can write.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "flowtally-e2e-")
	if err != nil {
		return "", err
	}
	built = dir
	if err := os.Chmod(dir, 0o755); err != nil { // for the test without privileges
		return "", err
	}
	syscall.Umask(0o022)
	making := exec.Command("make", "-C", "../../..", "--no-print-directory", "build", "BIN="+dir)
	if bin := os.Getenv("FLOWTALLY_BIN"); bin != "" {
		making = exec.Command("cp", "-r", bin+"/.", dir)
	}
	if out, err := making.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", making.Args, err, out)
	}
	return dir, nil
})

// binary returns the path of one of the project's programs.
func binary(t *testing.T, name string) string {
	t.Helper()
	if os.Getenv("FLOWTALLY_BIN") == "" {
		need.Tool(t, "go", "make")
	}
	dir, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}
