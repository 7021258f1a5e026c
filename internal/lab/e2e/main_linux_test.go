package e2e

import (
	"os"
	"testing"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/programs"
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
	shipped.Close()
	os.Exit(code)
}

var isolateErr error

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

// shipped are the programs that the tests run.
var shipped programs.Set

// binary returns the path of one of the project's programs.
func binary(t *testing.T, name string) string {
	t.Helper()
	return shipped.Path(t, name)
}
