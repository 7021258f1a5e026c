//go:build cgo

package soft_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/soft"
	"github.com/flowtally/flowtally/probe"
)

// No test of this package asks for a capability.
func TestMain(m *testing.M) {
	kernel.Preload()
	code := m.Run()
	kernel.Close()
	os.Exit(code)
}

var kernel soft.Kernel

// devices are on the loopback interface, which every namespace has.
func devices() []ibvtest.Device {
	return []ibvtest.Device{{Name: "mlx5_a", Netdev: "lo"}, {Name: "efa_a", Netdev: "lo"}}
}

func load(t *testing.T, e ibvtest.Env) *ibv.Library {
	t.Helper()
	kernel.Need(t)
	e.Set(t.Setenv)
	lib, err := ibv.Load(ibv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lib.Close(); err != nil {
			t.Error(err)
		}
	})
	return lib
}

func names(t *testing.T, lib *ibv.Library) []string {
	t.Helper()
	list, err := lib.Devices()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, d := range list {
		out = append(out, d.Name)
	}
	return out
}

func TestLibrariesOfTheHostOpenTheKernelsDevices(t *testing.T) {
	lib := load(t, ibvtest.Env{Devices: devices()})
	list, err := lib.Devices()
	if err != nil || len(list) != 2 {
		t.Fatalf("%d devices, %v; want those of the environment", len(list), err)
	}
	for _, d := range list {
		netdev, err := os.ReadFile(filepath.Join(d.SysfsPath, "ports/1/gid_attrs/ndevs/0"))
		if err != nil || string(netdev) != "lo\n" {
			t.Errorf("%s: sysfs has the interface %q, %v", d.Name, netdev, err)
		}
		c, err := lib.Open(d.Name)
		if err != nil {
			t.Fatal(err)
		}
		pd, err := c.AllocPD()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(pd.Close(), c.Close()); err != nil {
			t.Error(err)
		}
	}

	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"/uverbs.so", "/libibverbs.so.1.", "/libmlx5.so.1.", "/libefa.so.1."} {
		if !strings.Contains(string(maps), file) {
			t.Errorf("this process has no %s mapped", file)
		}
	}
}

func TestADeviceIsListedUntilItIsRemovedAndAfterItsReturn(t *testing.T) {
	control, err := ibvtest.NewControl(filepath.Join(t.TempDir(), "control"))
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	lib := load(t, ibvtest.Env{Devices: devices(), Control: control.Path()})
	all := []string{"mlx5_a", "efa_a"}
	listed := func(want []string) func() bool {
		slices.Sort(want)
		return func() bool {
			got := names(t, lib)
			slices.Sort(got)
			return slices.Equal(got, want)
		}
	}
	lab.Eventually(t, "both devices are listed", listed(all))
	if err := control.Remove("mlx5_a"); err != nil {
		t.Fatal(err)
	}
	lab.Eventually(t, "one device is listed", listed([]string{"efa_a"}))
	if err := control.Return("mlx5_a"); err != nil {
		t.Fatal(err)
	}
	lab.Eventually(t, "both devices are listed again", listed(all))
	if err := control.Fatal("mlx5_a"); err != nil {
		t.Fatal(err)
	}
	lab.Eventually(t, "a device that failed cannot be opened", func() bool {
		c, err := lib.Open("mlx5_a")
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	if !listed(all)() {
		t.Errorf("a device that failed is not listed: %q", names(t, lib))
	}
}

func TestAKernelWithoutAListIsAKernelWithoutRDMA(t *testing.T) {
	lib := load(t, ibvtest.Env{Devices: devices(), Fail: []ibvtest.Fault{{Verb: "DEVICE_LIST", Errno: "EIO", To: 1}}})
	if _, err := lib.Devices(); !errors.Is(err, probe.ErrNotSupported) {
		t.Errorf("error %v, want that the kernel has no user-space verbs", err)
	}
	if got := names(t, lib); len(got) != 2 {
		t.Errorf("the next list has %q", got)
	}
}

func TestAPreloadedProcessLeavesNoFile(t *testing.T) {
	kernel.Need(t)
	tmp := t.TempDir()
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run=^TestLibrariesOfTheHostOpenTheKernelsDevices$")
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "FLOWTALLY_PRELOADED=") }), "TMPDIR="+tmp)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Fatalf("%v\n%s", err, out)
	}
	left, err := os.ReadDir(tmp)
	if err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}
