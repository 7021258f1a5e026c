package cli

import (
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// The scripts run commands without a path, as root and as another user. Each script mounts its own /run and /dev/shm,
// in its own mount namespace.
func TestCommandsFindTheMirrorOnEachKindOfMachine(t *testing.T) {
	need.Root(t)
	need.Cap(t, "sys_admin")
	need.Tool(t, "unshare", "setpriv")
	unit, err := filepath.Abs("../../../configs/systemd/flowtally.service")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{Dir: "testdata/place", RequireUniqueNames: true, RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error { env.Setenv("UNIT", unit); return nil }})
}
