package rdma

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEachPortHasTheInterfaceOfItsFirstEntry(t *testing.T) {
	dir := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("ports/1/gid_attrs/ndevs/10", "eth0.5\n")
	write("ports/1/gid_attrs/ndevs/2", "eth0\n") // by number, not by name
	write("ports/2/gid_attrs/ndevs/0", "\n")
	write("ports/2/gid_attrs/ndevs/1", "eth1\n")
	write("ports/3/state", "4: ACTIVE\n")
	write("ports/x/gid_attrs/ndevs/0", "eth9\n")
	write("device/modalias", "pci:\n")
	want := []portNetdev{{1, "eth0"}, {2, "eth1"}}
	if diff := cmp.Diff(want, netdevsIn(dir), cmp.AllowUnexported(portNetdev{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := os.Symlink("../../../bus/auxiliary/drivers/mlx5_ib", filepath.Join(dir, "device", "driver")); err != nil {
		t.Fatal(err)
	}
	if got := driverOf(dir); got != "mlx5_ib" {
		t.Errorf("driver %q", got)
	}
	if got := netdevsIn(filepath.Join(dir, "nosuch")); got != nil {
		t.Errorf("of a device that is not there: %v", got)
	}
}
