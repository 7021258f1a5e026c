package cli

import (
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// TestCommandsFindTheMirrorOnEachKindOfMachine runs the commands without a path, as root and as another user, on machines whose /run and /dev/shm differ:
// each script mounts its own, in a mount namespace that ends with it.
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
