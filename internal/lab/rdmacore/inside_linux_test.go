//go:build releases

package rdmacore

import (
	"os"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/soft"
)

// insideEnv is set where this test binary runs in the root of a release.
const insideEnv = "FLOWTALLY_RDMA_RELEASE"

// TestMain is the process of a trial, too: an instance in a test starts its own program for one.
func TestMain(m *testing.M) {
	if code, is := engine.TrialMain(); is {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// overKernel runs test in the root of each suite, over the uverbs kernel in software: the calling test, run by this same
// binary. The devices are mlx5_0 and efa_0 on the ends v0 and v1 of a veth pair. e adds to the environment of the kernel.
func overKernel(t *testing.T, e ibvtest.Env, suites []string, test func(t *testing.T)) {
	t.Helper()
	if os.Getenv(insideEnv) != "" {
		test(t)
		evidence, err := Evidence()
		if err != nil {
			t.Error(err)
		}
		t.Logf("loaded:\n%s", strings.Join(evidence, "\n"))
		return
	}
	need.Root(t)
	var software soft.Libraries
	t.Cleanup(func() { software.Close() })
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	e.Devices = []ibvtest.Device{{Name: "mlx5_0", Netdev: "v0"}, {Name: "efa_0", Netdev: "v1"}}
	for _, suite := range suites {
		t.Run(suite, func(t *testing.T) {
			ns := netdevs(t)
			root := release(t, suite).NewRoot(t)
			t.Log(root)
			env := append(root.Preload(t, software.Get(t).Kernel, "v0", "v1"), e.Environ()...)
			env = append(env, insideEnv+"="+root.Version)
			name, _, _ := strings.Cut(t.Name(), "/")
			args := []string{"-test.v", "-test.run=^" + name + "$"}
			if testing.Short() {
				args = append(args, "-test.short")
			}
			err = ns.Do(func() error {
				out, err := root.Run(t.Context(), program, env, args...)
				t.Logf("inside:\n%s", out)
				if err == nil && !strings.Contains(string(out), "--- PASS: "+name) {
					t.Error("the test did not run inside")
				}
				return err
			})
			if err != nil {
				t.Errorf("over the libraries of %s: %v", root, err)
			}
		})
	}
}
