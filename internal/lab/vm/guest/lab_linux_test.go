//go:build vm

package guest

import (
	"bytes"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/internal/lab"
)

// patience is the longest wait for an expected state, on an emulated CPU that other processes use
// too.
const patience = 3 * time.Minute

// newPair is a veth pair, near in this namespace and far in one of its own, with
// addresses of 10.77.0.0/24.
func newPair(t *testing.T, name string) *lab.Pair {
	t.Helper()
	near, err := lab.CurrentNetns()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close() })
	far, err := lab.NewNetns("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	pair, err := lab.NewPair(near, far, name, "far-"+name, lab.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pair.Close() })
	for end, addr := range map[*lab.End]string{pair.A: "10.77.0.1/24", pair.B: "10.77.0.2/24"} {
		if err := end.AddAddr(netip.MustParsePrefix(addr)); err != nil {
			t.Fatal(err)
		}
	}
	return pair
}

// addRXE puts an rxe device on a netdev, as `rdma link add` does.
func addRXE(t *testing.T, device, netdev string) {
	t.Helper()
	if err := netlink.RdmaLinkAdd(device, "rxe", netdev); err != nil {
		t.Fatalf("adding rxe device %s on %s: %v", device, netdev, err)
	}
	t.Cleanup(func() {
		if err := netlink.RdmaLinkDel(device); err != nil {
			t.Errorf("removing %s: %v", device, err)
		}
	})
}

// openRXE is the distribution's libibverbs and the rxe device, opened.
func openRXE(t *testing.T, device string) (*ibv.Library, *ibv.Context) {
	t.Helper()
	lib, err := ibv.Load(ibv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, lib)
	ctx, err := lib.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, ctx)
	return lib, ctx
}

// mustClose closes at the end of the test, last first.
func mustClose(t *testing.T, o interface{ Close() error }) {
	t.Helper()
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
}

// program is the path of one of the project's programs.
func program(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("FLOWTALLY_GUEST_BIN")
	if dir == "" {
		t.Fatal("FLOWTALLY_GUEST_BIN is not set: these tests run inside a machine of package vm (make test-vm)")
	}
	return filepath.Join(dir, name)
}

// command runs a program to its end and returns its output.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = 20 * time.Second
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String()
}
