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
	uverbs.Preload()
	_ = lab.Isolate(lab.ForTests) // without the privilege the tests run where they are
	code := m.Run()
	uverbs.Close()
	software.Close()
	os.Exit(code)
}

var uverbs soft.Kernel

// software has the shim in front of the host's libraries, for what no kernel can cause.
var software soft.Libraries

// softLibs are the shims, built once per run.
func softLibs(t *testing.T) ibvtest.Libs {
	t.Helper()
	need.Cap(t, "net_admin", "sys_admin", "net_raw")
	need.Netns(t)
	return software.Get(t)
}

// softNIC is a software device with a wire.
type softNIC struct{ *soft.NIC }

// newSoftNIC is a device of the uverbs kernel in software, below the host's libraries.
func newSoftNIC(t *testing.T) *softNIC {
	t.Helper()
	return &softNIC{soft.NewNIC(t, &uverbs)}
}

// newShimmedNIC is the same, with the shim in front of the libraries.
func newShimmedNIC(t *testing.T) *softNIC {
	t.Helper()
	return &softNIC{soft.NewNIC(t, &software)}
}
