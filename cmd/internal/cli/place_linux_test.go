package cli

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// TestPlaces runs the commands without a path, as root and as another user, on machines whose /run and /dev/shm differ:
// each script mounts its own, in a mount namespace that ends with it.
func TestPlaces(t *testing.T) {
	need.Root(t)
	need.Cap(t, "sys_admin")
	need.Tool(t, "unshare", "setpriv")
	testscript.Run(t, testscript.Params{Dir: "testdata/place", RequireUniqueNames: true, RequireExplicitExec: true})
}
