//go:build releases && cgo

package ibv

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/rdmacore"
)

// overKernel runs inside in the root of each release, over the uverbs kernel in software: the calling test, run by this
// same binary. The devices are mlx5_0 and efa_0 on the ends v0 and v1 of a veth pair. e adds to the environment of the kernel.
// The name of a test using it must begin like TestKernelOpensBothDevices: `make test-releases` runs such tests.
func overKernel(t *testing.T, e ibvtest.Env, suites []string, inside func(t *testing.T)) {
	t.Helper()
	overKernels(t, [][]string{e.Environ()}, suites, inside)
}

// overKernels is overKernel with a process, and so a kernel, for each environment.
func overKernels(t *testing.T, environs [][]string, suites []string, inside func(t *testing.T)) {
	t.Helper()
	runOver(t, false, environs, suites, inside)
}

// overServer is overKernels with the front end uverbsd.
func overServer(t *testing.T, environs [][]string, suites []string, inside func(t *testing.T)) {
	t.Helper()
	runOver(t, true, environs, suites, inside)
}

func runOver(t *testing.T, served bool, environs [][]string, suites []string, inside func(t *testing.T)) {
	t.Helper()
	if os.Getenv(insideEnv) != "" {
		inside(t)
		evidence, err := rdmacore.Evidence()
		if err != nil {
			t.Error(err)
		}
		t.Logf("loaded: %s", strings.Join(evidence, "\n"))
		return
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	devices := ibvtest.Env{Devices: []ibvtest.Device{{Name: "mlx5_0", Netdev: "v0"}, {Name: "efa_0", Netdev: "v1"}}}
	for _, suite := range suites {
		t.Run(suite, func(t *testing.T) {
			r := release(t, suite).NewRoot(t)
			ns := must(lab.NewNetns(""))(t)
			defer ns.Close()
			pair := must(lab.NewPair(ns, ns, "v0", "v1", lab.PairOptions{}))(t)
			defer pair.Close()
			common := []string{insideEnv + "=" + r.Version, "GOTRACEBACK=all"}
			if served {
				r.Serve(t, softLibs(t).Server, "v0", "v1")
				common = append(common, servedEnv+"=1")
			} else {
				common = append(common, r.Preload(t, softLibs(t).Kernel, "v0", "v1")...)
			}
			name, _, _ := strings.Cut(t.Name(), "/")
			for _, environ := range environs {
				err := ns.Do(func() error {
					// If a variable has two values, the first non-empty one counts.
					env := slices.Concat(slices.DeleteFunc(slices.Clone(environ), empty), slices.DeleteFunc(devices.Environ(), empty), common)
					out, err := r.Run(t.Context(), program, env, "-test.v", "-test.run=^"+name+"$")
					t.Logf("inside, with %q:\n%s", environ, out)
					if err == nil && !strings.Contains(string(out), "--- PASS: "+name) {
						t.Errorf("%s did not run", name)
					}
					return err
				})
				if err != nil {
					t.Errorf("over the libraries of %s, with %q: %v", r, environ, err)
				}
			}
		})
	}
}

// empty reports whether a variable of the environment has no value.
func empty(variable string) bool { return strings.HasSuffix(variable, "=") }

// The providers of each release open the device, make a protection domain and a memory region, and query it, over the
// uverbs kernel in software.
func TestKernelOpensBothDevices(t *testing.T) {
	overKernel(t, ibvtest.Env{}, rdmacore.Suites(), func(t *testing.T) {
		lib := must(Load(Options{}))(t)
		defer lib.Close()
		for _, d := range must(lib.Devices())(t) {
			c := must(lib.Open(d.Name))(t)
			attr := must(c.QueryDevice())(t)
			port := must(c.QueryPort(1))(t)
			pd := must(c.AllocPD())(t)
			mr := must(pd.AllocMR(8192, AccessLocalWrite))(t)
			t.Logf("%s: vendor %#x, %d QPs, port %v, lkey %#x", d.Name, attr.VendorID, attr.MaxQP, port, mr.LKey())
			for _, close := range []func() error{mr.Close, pd.Close, c.Close} {
				if err := close(); err != nil {
					t.Errorf("%s: %v", d.Name, err)
				}
			}
		}
	})
}
