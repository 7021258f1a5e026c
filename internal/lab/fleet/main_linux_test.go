package fleet

import (
	"os"
	"testing"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/programs"
)

func TestMain(m *testing.M) {
	isolateErr = lab.Isolate(lab.ForTests)
	code := m.Run()
	shipped.Close()
	os.Exit(code)
}

var isolateErr error

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

// shipped are the programs that the tests run, as other users too.
var shipped = programs.Set{Names: []string{"flowtally", "flowtally-plugin"}}

// binary returns the path of one of the project's programs.
func binary(t *testing.T, name string) string {
	t.Helper()
	return shipped.Path(t, name)
}
