package engine

import (
	"fmt"
	"os"
	"testing"

	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/soft"
)

func TestMain(m *testing.M) {
	if code, is := TrialMain(); is {
		os.Exit(code)
	}
	if args := os.Getenv(crowdEnv); args != "" {
		fmt.Fprintln(os.Stderr, addCrowdUntilKilled(args))
		os.Exit(1)
	}
	_ = lab.Isolate(lab.ForTests) // without the privilege the tests run where they are
	code := m.Run()
	software.Close()
	os.Exit(code)
}

var software soft.Libraries

// softLibs are the software libibverbs and libmlx5, built once per run.
func softLibs(t *testing.T) ibvtest.Libs {
	t.Helper()
	need.Cap(t, "net_admin", "sys_admin", "net_raw")
	need.Netns(t)
	return software.Get(t)
}

// softNIC is a software device with a wire.
type softNIC struct{ *soft.NIC }

func newSoftNIC(t *testing.T) *softNIC {
	t.Helper()
	return &softNIC{soft.NewNIC(t, &software)}
}
